"""Products of many experts at once, weights packed as MXFP4; equals ``grouped_plain``.

N rows, sorted by expert, E experts, R outputs, C inputs, P packed inputs (C / 2), G groups
(C / 32).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from k31ctl.engine.mxfp4 import dequantise

_ROWS, _OUTPUTS, _BYTES = 16, 32, 32


@triton.jit
def _value(code):  # type: ignore[no-untyped-def]
    """The number of four bits: a sign, two bits of exponent and one of mantissa."""
    exponent, mantissa = (code >> 1) & 3, code & 1
    twice = tl.where(exponent == 0, mantissa, (2 + mantissa) << tl.maximum(exponent - 1, 0))
    return tl.where(code > 7, -0.5, 0.5) * twice.to(tl.float32)  # noqa: PLR2004 - the sign bit


@triton.jit
def _power(code):  # type: ignore[no-untyped-def]
    """``2^(code - 127)`` by its bits; 0 is the subnormal 2^-127 and 255 is NaN."""
    bits = tl.where(code == 0, 0x400000, tl.where(code == 255, 0x7FC00000, code << 23))  # noqa: PLR2004
    return bits.to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def _grouped(  # type: ignore[no-untyped-def]
    x, packed, scale, out, blocks, R, P,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, BYTES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Some rows of one expert times some of its outputs; a row of ``blocks`` says which."""
    table = blocks + tl.program_id(0) * 3
    expert, begin, end = tl.load(table), tl.load(table + 1), tl.load(table + 2)
    row = begin + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    weight_row = expert * R + output
    total = tl.zeros((ROWS, OUTPUTS), dtype=tl.float32)
    for first in range(0, P, BYTES):
        byte = first + tl.arange(0, BYTES)
        inside = (output < R)[:, None] & (byte < P)[None, :]
        code = tl.load(packed + weight_row[:, None] * P + byte[None, :], mask=inside, other=0)
        at = weight_row[:, None] * (P // 16) + byte[None, :] // 16
        power = _power(tl.load(scale + at, mask=inside, other=127).to(tl.int32))
        code = code.to(tl.int32)
        seen = (row < end)[:, None] & (byte < P)[None, :]
        place = x + row[:, None] * (2 * P) + 2 * byte[None, :]
        even = tl.load(place, mask=seen, other=0.0).to(tl.float32)
        odd = tl.load(place + 1, mask=seen, other=0.0).to(tl.float32)
        low = _value(code & 15) * power
        high = _value(code >> 4) * power
        total = tl.dot(even, tl.trans(low), total, input_precision=PRECISION)
        total = tl.dot(odd, tl.trans(high), total, input_precision=PRECISION)
    kept = (row < end)[:, None] & (output < R)[None, :]
    place = out + row[:, None] * R + output[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=kept)


def grouped_plain(x_NC: Tensor, packed_ERP: Tensor, scale_ERG: Tensor, counts: list[int]) -> Tensor:
    """``x Wᵀ`` with the matrix of each row's expert; the first counts[0] rows are expert 0's."""
    parts = [
        x @ dequantise(packed, scale, dtype=x.dtype).T
        for x, packed, scale in zip(x_NC.split(counts), packed_ERP, scale_ERG, strict=True)
    ]
    return torch.cat(parts)


def grouped(x_NC: Tensor, packed_ERP: Tensor, scale_ERG: Tensor, counts: list[int]) -> Tensor:
    """The same; only the experts that have rows are read."""
    N, (_, R, P) = len(x_NC), packed_ERP.shape
    blocks, begin = [], 0
    for expert, count in enumerate(counts):
        end = begin + count
        blocks += [(expert, first, end) for first in range(begin, end, _ROWS)]
        begin = end
    out = x_NC.new_empty(N, R)
    if blocks:
        table = torch.tensor(blocks, dtype=torch.int64, device=x_NC.device)
        grid = (len(blocks), triton.cdiv(R, _OUTPUTS))
        # Both bf16 and MXFP4 fit into the ten bits of tf32, so that it rounds nothing there.
        precision = "ieee" if x_NC.dtype == torch.float32 else "tf32"
        sizes = {"ROWS": _ROWS, "OUTPUTS": _OUTPUTS, "BYTES": _BYTES, "PRECISION": precision}
        with torch.cuda.device_of(x_NC):
            _grouped[grid](x_NC.contiguous(), packed_ERP, scale_ERG, out, table, R, P, **sizes)
    return out
