"""KDA over prompts, some tokens at a time; equals ``kda.kda_chunked``, hence ``kda_recurrent``.

B sequences, T tokens, H heads, K key channels, V value channels, C tokens of a chunk.
"""

import triton
import triton.language as tl
from torch import Tensor

from k31ctl.engine.kernels.kda import launched

_C = 16
# With four, Triton 3.9 spills four times as many registers on sm_90 (compiled, not measured).
_WARPS = 8


@triton.jit  # type: ignore[untyped-decorator]
def _chunked(  # type: ignore[no-untyped-def]
    q, k, v, g, beta, state, out, scale, T, H, K, V,
    C: tl.constexpr, K_BLOCK: tl.constexpr, V_BLOCK: tl.constexpr,
):  # fmt: skip
    """One head of one sequence, and some of its value channels, chunk by chunk.

    Formula: n_i = beta_i (v_i - Sᵀ(e^G_i k_i) - sum_{j<i} (k_i e^(G_i - G_j) k_j) n_j);
    o_i = scale (Sᵀ(e^G_i q_i) + sum_{j<=i} (q_i e^(G_i - G_j) k_j) n_j);
    S = diag(e^G_last) S + sum_j (e^(G_last - G_j) k_j) n_jᵀ

    G is the sum of g within the chunk. Each G_i - G_j is summed for itself, from j on, and not the
    difference of two large sums: nothing overflows or cancels, however fast a head forgets.
    """
    head = tl.program_id(0)
    key, token = tl.arange(0, K_BLOCK), tl.arange(0, C)
    value = tl.program_id(1) * V_BLOCK + tl.arange(0, V_BLOCK)
    place = state + head * K * V + key[:, None] * V + value[None, :]
    inside = (key < K)[:, None] & (value < V)[None, :]
    S = tl.load(place, mask=inside, other=0.0)
    for begin in range(0, T, C):
        row = (head // H * T + begin + token) * H + head % H
        is_here = begin + token < T
        keys, is_key = row[:, None] * K + key[None, :], is_here[:, None] & (key < K)[None, :]
        values = row[:, None] * V + value[None, :]
        is_value = is_here[:, None] & (value < V)[None, :]
        q_CK = tl.load(q + keys, mask=is_key, other=0.0) * scale
        k_CK = tl.load(k + keys, mask=is_key, other=0.0)
        g_CK = tl.load(g + keys, mask=is_key, other=0.0)
        beta_C = tl.load(beta + row, mask=is_here, other=0.0)
        kk, qk = tl.zeros((C, C), tl.float32), tl.zeros((C, C), tl.float32)
        here = tl.minimum(C, T - begin)
        for j in range(here):
            since = tl.cumsum(tl.where((token > j)[:, None], g_CK, 0.0), axis=0)
            k_j = tl.sum(tl.where((token == j)[:, None], k_CK, 0.0), axis=0)
            seen = tl.exp(since) * k_j[None, :]
            is_column = (token == j)[None, :]
            behind = is_column & (token > j)[:, None]
            kk += tl.where(behind, tl.sum(k_CK * seen, axis=1)[:, None], 0.0)
            behind = is_column & (token >= j)[:, None]
            qk += tl.where(behind, tl.sum(q_CK * seen, axis=1)[:, None], 0.0)
        grown = tl.exp(tl.cumsum(g_CK, axis=0))
        v_CV = tl.load(v + values, mask=is_value, other=0.0)
        v_CV -= tl.dot(k_CK * grown, S, input_precision="tf32x3")
        new = tl.zeros((C, V_BLOCK), tl.float32)
        for i in range(here):
            is_row = (token == i)[:, None]
            before = tl.sum(tl.where(is_row, kk, 0.0), axis=0)
            n_i = tl.where(is_row, v_CV, 0.0) - tl.where(is_row, 1.0, 0.0) * tl.sum(
                before[:, None] * new, axis=0
            )
            new += n_i * beta_C[:, None]
        said = tl.dot(q_CK * grown, S, input_precision="tf32x3")
        said += tl.dot(qk, new, input_precision="tf32x3")
        tl.store(out + values, said, mask=is_value)
        after = keys + H * K  # the decay of the token behind, so that the last one decays no more
        is_after = is_key & (token < C - 1)[:, None] & (begin + token + 1 < T)[:, None]
        left = tl.exp(tl.cumsum(tl.load(g + after, mask=is_after, other=0.0), axis=0, reverse=True))
        S *= tl.exp(tl.sum(g_CK, axis=0))[:, None]
        S += tl.dot(tl.trans(k_CK * left), new, input_precision="tf32x3")
    tl.store(place, S, mask=inside)


def kda_chunked(*tensors: Tensor, scale: float) -> Tensor:
    """Chunk by chunk; the tensors are those of ``launched``."""
    return launched(_chunked, tensors, scale, C=_C, num_warps=_WARPS)
