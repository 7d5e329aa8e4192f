"""MXFP4 as encoders write it: number formats by ml_dtypes, the choice of scale as published.

OCP MX 1.0, section 6.3 takes the scale from the largest magnitude, rounded down to a power of two;
others round up so that nothing is clamped, or round the magnitude itself first.
"""

from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.fetch.tiny_checkpoint import write_shard

Values = NDArray[np.float32]
GROUP = 32
LARGEST = 6.0
SCALES = ("floor", "ceil", "even")
NAME = "model.layers.0.mlp.experts.0.w1"


def exponents(largest: Values, how: str) -> NDArray[np.int64]:
    """The exponent of the scale of each group, for largest magnitudes above zero."""
    if how == "ceil":
        found = np.ceil(np.log2(largest / LARGEST))
    elif how == "even":  # to one bit behind the point, half up: 1.75 counts as 2
        found = np.floor(np.log2(largest * (1 + 0.125))) - 2
    else:
        found = np.floor(np.log2(largest)) - 2
    clipped: NDArray[np.int64] = np.clip(found, -127, 127).astype(np.int64)
    return clipped


def encoded(values: Values, how: str, *, least: float = 0.0) -> tuple[bytes, bytes]:
    """Packed codes, the first in the low half, and scale bytes; rows of whole groups.

    ``least`` is the magnitude that an encoder puts in the place of an all-zero group's.
    """
    groups = values.astype(ml_dtypes.bfloat16).astype(np.float64).reshape(-1, GROUP)
    largest = np.maximum(np.abs(groups).max(axis=1), least)
    exponent = np.where(
        largest > 0, exponents(np.where(largest > 0, largest, 1.0), how), -127
    ).astype(np.float64)
    scale = np.exp2(exponent)
    codes = np.clip(groups / scale[:, None], -LARGEST, LARGEST).astype(ml_dtypes.float4_e2m1fn)
    nibbles = codes.view(np.uint8) & 0x0F
    packed = nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)
    return packed.tobytes(), scale.astype(ml_dtypes.float8_e8m0fnu).tobytes()


def write_encoded(path: Path, packed: bytes, scales: bytes) -> None:
    tensors = {
        f"{NAME}.weight_packed": (SimpleNamespace(dtype="U8", shape=(len(packed),)), packed),
        f"{NAME}.weight_scale": (SimpleNamespace(dtype="U8", shape=(len(scales),)), scales),
    }
    write_shard(path, tensors)


def distributions(rows: int, columns: int) -> dict[str, Values]:
    """Weights as they may be, each by a seed of its own."""
    some = np.random.default_rng(11)
    normal = some.normal(0, 0.02, (rows, columns))
    row_scales = np.exp2(some.uniform(-9, 3, (rows, 1)))
    sparse_rows = normal * (some.random((rows, 1)) < 0.5)
    mostly_dead = normal * (some.random((rows, 1)) < 0.1)
    masked = normal * (some.random((rows, columns)) < 0.05)
    outliers = normal.copy()
    outliers[3, ::97] *= 2.0**12
    found = {
        "normal": normal,
        "uniform": some.uniform(-0.1, 0.1, (rows, columns)),
        "laplace": some.laplace(0, 0.01, (rows, columns)),
        "student t, 2 degrees": 0.01 * some.standard_t(2, (rows, columns)),
        "cauchy": 0.001 * some.standard_cauchy((rows, columns)),
        "log-normal": some.lognormal(-5, 2, (rows, columns)),
        "rows of many sizes": normal * row_scales,
        "half of the rows zero": sparse_rows,
        "nine rows of ten zero": mostly_dead,
        "masked": masked,
        "outliers": outliers,
        "constant": np.full((rows, columns), 0.0123),
        "constant sign": np.abs(normal),
        "one per group": normal * (np.arange(columns) % GROUP == 0),
        "tiny": normal * 2.0**-80,
        "all zero but one": np.where(np.arange(columns) == 5, normal, 0.0),
        "dead rows that drifted": np.where(some.random((rows, 1)) < 0.6, normal * 2.0**-30, normal),
    }
    return {name: values.astype(np.float32) for name, values in found.items()}
