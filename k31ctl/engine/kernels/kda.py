"""The recurrence of KDA with its state in registers; equals ``kda.kda_recurrent``.

B sequences, T tokens, H heads, K key channels, V value channels.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

V_BLOCK = 32


@triton.jit  # type: ignore[untyped-decorator]
def _recurrent(  # type: ignore[no-untyped-def]
    q, k, v, g, beta, state, out, scale, T, H, K, V, K_BLOCK: tl.constexpr, V_BLOCK: tl.constexpr
):
    """One head of one sequence, and some of its value channels, over all tokens."""
    head = tl.program_id(0)
    key = tl.arange(0, K_BLOCK)
    value = tl.program_id(1) * V_BLOCK + tl.arange(0, V_BLOCK)
    place = state + head * K * V + key[:, None] * V + value[None, :]
    inside = (key < K)[:, None] & (value < V)[None, :]
    S = tl.load(place, mask=inside, other=0.0)
    for t in range(T):
        row = (head // H * T + t) * H + head % H
        decay = tl.exp(tl.load(g + row * K + key, mask=key < K, other=0.0))
        k_t = tl.load(k + row * K + key, mask=key < K, other=0.0)
        q_t = tl.load(q + row * K + key, mask=key < K, other=0.0) * scale
        v_t = tl.load(v + row * V + value, mask=value < V, other=0.0)
        S = S * decay[:, None]
        delta = (v_t - tl.sum(k_t[:, None] * S, axis=0)) * tl.load(beta + row)
        S = S + k_t[:, None] * delta[None, :]
        tl.store(out + row * V + value, tl.sum(q_t[:, None] * S, axis=0), mask=value < V)
    tl.store(place, S, mask=inside)


def launched(kernel: Any, tensors: Sequence[Tensor], scale: float, **sizes: int) -> Tensor:
    """Run a kernel over heads and blocks of value channels: returns o [B, T, H, V].

    ``tensors`` are q, k, v, g, beta and the state, which is updated in place.
    """
    q, k, v, g, beta, state = (x.contiguous() for x in tensors)
    (B, T, H, V), K, out = v.shape, q.shape[-1], torch.empty_like(v)
    with torch.cuda.device_of(v):
        grid = (B * H, triton.cdiv(V, V_BLOCK))
        kernel[grid](
            q, k, v, g, beta, state, out, scale, T, H, K, V,
            K_BLOCK=max(16, triton.next_power_of_2(K)), V_BLOCK=V_BLOCK, **sizes,
        )  # fmt: skip
    if state is not tensors[-1]:
        tensors[-1].copy_(state)
    return out


def kda_recurrent(*tensors: Tensor, scale: float) -> Tensor:
    """Token by token; the tensors are those of ``launched``."""
    return launched(_recurrent, tensors, scale)
