"""Scores of an indexer without the T x Y x L numbers between; equals ``index_scores``.

T new tokens, L tokens seen, Y index heads, X index channels.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 16


@triton.jit  # type: ignore[untyped-decorator]
def _scores(  # type: ignore[no-untyped-def]
    query, weight, key, out, scale, T, L, Y, X, BLOCK: tl.constexpr, X_BLOCK: tl.constexpr
):
    """Some tokens against some earlier ones, head after head."""
    t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    s = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.arange(0, X_BLOCK)
    seen = (s < L)[:, None] & (x < X)[None, :]
    k = tl.load(key + s[:, None] * X + x[None, :], mask=seen, other=0.0).to(tl.float32)
    asked = (t < T)[:, None] & (x < X)[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for y in range(Y):
        place = query + (t[:, None] * Y + y) * X + x[None, :]
        q = tl.load(place, mask=asked, other=0.0).to(tl.float32)
        w = tl.load(weight + t * Y + y, mask=t < T, other=0.0).to(tl.float32)
        alike = tl.dot(q, tl.trans(k), input_precision="ieee")
        total += w[:, None] * scale * tl.maximum(alike, 0.0)
    kept = (t < T)[:, None] & (s < L)[None, :]
    tl.store(out + t[:, None] * L + s[None, :], total, mask=kept)


def index_scores(query_TYX: Tensor, weight_TY: Tensor, key_LX: Tensor) -> Tensor:
    """What an indexer thinks of every earlier token, [T, L] in float32."""
    T, Y, X = query_TYX.shape
    L = len(key_LX)
    query, weight, key = (x.contiguous() for x in (query_TYX, weight_TY, key_LX))
    out = torch.empty(T, L, dtype=torch.float32, device=query.device)
    grid = (triton.cdiv(T, _BLOCK), triton.cdiv(L, _BLOCK))
    sizes = {"BLOCK": _BLOCK, "X_BLOCK": max(16, triton.next_power_of_2(X))}
    with torch.cuda.device_of(query):
        _scores[grid](query, weight, key, out, (X * Y) ** -0.5, T, L, Y, X, **sizes)
    return out
