"""MXFP4 as checkpoints store it: two values a byte, and a power of two for every 32 of a row.

R rows, C columns, P packed columns (C / 2), G groups (C / 32).
Source: OCP Microscaling Formats (MX) 1.0; compressed-tensors, format mxfp4-pack-quantized.
"""

import math
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from k31ctl.engine.kernels import choice
from k31ctl.engine.linear import Linear
from k31ctl.engine.tensors import Target, joined

GROUP = 32
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_LARGEST_E4M3 = 448.0


@cache
def _pairs(device: torch.device) -> Tensor:
    """The two values of every byte; the low four bits are the even column."""
    signed = [*_MAGNITUDES, *(-value for value in _MAGNITUDES)]
    pairs = [(signed[byte & 15], signed[byte >> 4]) for byte in range(256)]
    return torch.tensor(pairs, dtype=torch.float32, device=device)


@cache
def _scales(device: torch.device) -> Tensor:
    """``2^(e - 127)`` for every byte; 255 is NaN and 0 is 2^-127, as the format says."""
    found = [math.ldexp(1.0, e - 127) for e in range(255)] + [math.nan]
    return torch.tensor(found, dtype=torch.float32, device=device)


def dequantise(
    packed_RP: Tensor, scale_RG: Tensor, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The values of a packed matrix, [R, C]; exact for scales below 253 (6 x 2^126 is infinite)."""
    value = functional.embedding(packed_RP.int(), _pairs(packed_RP.device))
    scale = _scales(scale_RG.device)[scale_RG.int()]
    value_RGM = value.reshape(*scale_RG.shape, GROUP) * scale[..., None]
    return value_RGM.flatten(-2).to(dtype)


def mxfp8_rounded(x_TC: Tensor) -> Tensor:
    """Activations as MXFP8 carries them: e4m3 under one power of two for every 32 of a row.

    The scale is 2^ceil(log2(largest / 448)), vLLM's rule and torchao's RCEIL, so that nothing is
    cut off; the format's own rule rounds the exponent down.
    """
    x = x_TC.float().unflatten(-1, (-1, GROUP))
    largest = x.abs().amax(-1, keepdim=True)
    mantissa, exponent = torch.frexp(largest / _LARGEST_E4M3)
    exponent = exponent - (mantissa == 0.5).int()  # noqa: PLR2004 - a power of two exactly
    scale = torch.ldexp(torch.ones_like(x[..., :1]), exponent.clamp(min=-127))
    return ((x / scale).to(torch.float8_e4m3fn).float() * scale).flatten(-2).to(x_TC.dtype)


class PackedLinear(Linear):
    """``x Wᵀ`` where W stays packed: less memory; torch spells it out for each product."""

    def __init__(self, parts: list[tuple[Tensor, Tensor]], target: Target) -> None:
        self.widths = [len(packed) for packed, _ in parts]
        self.packed_RP = joined([packed for packed, _ in parts]).to(target.device)
        self.scale_RG = joined([scale for _, scale in parts]).to(target.device)
        self.num_bytes = self.packed_RP.nbytes + self.scale_RG.nbytes
        self._uses_triton = choice(target).uses_triton
        target.forms["packed as MXFP4"] += 1

    def __call__(self, x_TI: Tensor) -> Tensor:
        """The product."""
        if self._uses_triton:
            from k31ctl.engine.kernels.mxfp4 import grouped  # noqa: PLC0415 - imports Triton

            return grouped(x_TI, self.packed_RP[None], self.scale_RG[None], [len(x_TI)])
        return functional.linear(x_TI, dequantise(self.packed_RP, self.scale_RG, dtype=x_TI.dtype))
