"""SiTU in one pass over memory; equals ``linear.situ``.

N numbers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _situ(gate, up, out, N, gate_bound, up_bound, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    g = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    if up_bound > 0:
        u = _tanh(u / up_bound) * up_bound
    said = _tanh(g / gate_bound) * gate_bound * tl.sigmoid(g) * u
    tl.store(out + at, said.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    """Near zero by its series: there 2 sigmoid(2x) - 1 would lose what it is about."""
    small = x * (1 - x * x * (1.0 / 3 - x * x * (2.0 / 15 - x * x * (17.0 / 315))))
    return tl.where(tl.abs(x) < 0.15, small, 2 * tl.sigmoid(2 * x) - 1)  # noqa: PLR2004


def situ(gate: Tensor, up: Tensor, *, gate_bound: float, up_bound: float | None) -> Tensor:
    """``a tanh(g/a) sigmoid(g) * b tanh(u/b)`` in float32, rounded to the input's type."""
    gate, up = gate.contiguous(), up.contiguous()
    out, N = torch.empty_like(gate), gate.numel()
    grid = (triton.cdiv(N, _BLOCK),)
    with torch.cuda.device_of(gate):
        _situ[grid](gate, up, out, N, gate_bound, up_bound or 0.0, BLOCK=_BLOCK)
    return out
