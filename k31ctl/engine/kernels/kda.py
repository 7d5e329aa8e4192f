"""The recurrence of KDA with its state in registers; equals ``kda.kda_recurrent``.

B sequences, T tokens, H heads, K key channels, V value channels.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_V_BLOCK = 32


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


def kda_recurrent(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    g_BTHK: Tensor,
    beta_BTH: Tensor,
    state_BHKV: Tensor,
    *,
    scale: float,
) -> Tensor:
    """Token by token: returns o [B, T, H, V] and leaves the new state in ``state_BHKV``."""
    B, T, H, V = v_BTHV.shape
    K = q_BTHK.shape[-1]
    q, k, v, g, beta = (x.contiguous() for x in (q_BTHK, k_BTHK, v_BTHV, g_BTHK, beta_BTH))
    state, out = state_BHKV.contiguous(), torch.empty_like(v)
    grid = (B * H, triton.cdiv(V, _V_BLOCK))
    sizes = {"K_BLOCK": triton.next_power_of_2(K), "V_BLOCK": _V_BLOCK}
    with torch.cuda.device_of(q_BTHK):
        _recurrent[grid](q, k, v, g, beta, state, out, scale, T, H, K, V, **sizes)
    if state is not state_BHKV:
        state_BHKV.copy_(state)
    return out
