"""Random numbers as the bytes of a tensor, the same on every machine.

Every number is one of 256 quantiles of the normal distribution, drawn by a random byte: bytes are
then translated plane by plane, without a loop over numbers and without numpy.
"""

import math
import random
import struct
from math import prod
from statistics import NormalDist
from typing import Final

from k31ctl.core.tensors import ELEMENT_BYTES, TensorTemplate

_NORMAL: Final = tuple(round(NormalDist().inv_cdf((i + 0.5) / 256), 4) for i in range(256))
# As an encoder writes it, the largest value of a group of 32 (16 bytes) is 4 or 6; here always 6.
_GROUP_BYTES: Final = 16
_WITH_SIX: Final = bytes(byte | 0x07 for byte in range(256))
# Mean and spread by the end of a name; a spread of None is one over the root of the inputs.
_KINDS: Final = (
    ("A_log", 0.3, 0.7),
    ("dt_bias", -1.0, 0.7),
    ("conv1d.weight", 0.0, 0.5),
    ("e_score_correction_bias", 0.0, 0.1),
    ("k_norm.bias", 0.0, 0.1),
    ("res_proj.weight", 0.0, 0.2),
    ("embed_tokens.weight", 0.0, 1.0),
    ("pos_emb.weight", 0.0, 0.1),
)
_STRONG: Final = ("lm_head.weight", "block_sparse_moe.gate.weight")  # so that choices are clear


def random_bytes(template: TensorTemplate, name: str, draw: random.Random) -> bytes:
    """The content of one tensor, at the scale that keeps activations near one."""
    count = prod(template.shape)
    raw = draw.randbytes(count)
    if name.endswith("weight_packed"):
        data = bytearray(raw)
        data[::_GROUP_BYTES] = raw[::_GROUP_BYTES].translate(_WITH_SIX)
        return bytes(data)
    if name.endswith("weight_scale"):
        exponent = 127 + math.floor(math.log2(1 / (3 * math.sqrt(template.shape[1] * 32))))
        return raw.translate(bytes(exponent + (byte & 1) for byte in range(256)))
    mean, spread = _mean_and_spread(name, template.shape)
    data = bytearray(_planes(raw, template.dtype, mean=mean, spread=spread))
    if template.params < count:  # a vector that the release fills up with zeros
        data[template.params * ELEMENT_BYTES[template.dtype] :] = bytes(
            (count - template.params) * ELEMENT_BYTES[template.dtype]
        )
    return bytes(data)


def _mean_and_spread(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    for end, mean, spread in _KINDS:
        if name.endswith(end):
            return mean, spread
    if len(shape) == 1:
        return 1.0, 0.1
    strength = 2.0 if name.endswith(_STRONG) else 1.0
    return 0.0, strength / math.sqrt(prod(shape[1:]))


def _planes(raw: bytes, dtype: str, *, mean: float, spread: float) -> bytes:
    """The quantile of each byte, as BF16 (the upper half of a float32) or F32."""
    width = ELEMENT_BYTES[dtype]
    table = [struct.pack("<f", mean + spread * z)[4 - width :] for z in _NORMAL]
    data = bytearray(len(raw) * width)
    for plane in range(width):
        data[plane::width] = raw.translate(bytes(value[plane] for value in table))
    return bytes(data)
