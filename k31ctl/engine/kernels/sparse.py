"""Latent attention of each token over tokens of its own choice; equals ``sparse_plain``.

T new tokens, S chosen of each, L tokens seen, H heads, R latent rank, P channels beside it,
C = R + P.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 16


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    query, seen, chosen, out, scale, H, S, R, P,
    BLOCK: tl.constexpr, R_BLOCK: tl.constexpr, P_BLOCK: tl.constexpr,
):  # fmt: skip
    """Some heads of one token; the softmax is corrected as larger scores come."""
    t = tl.program_id(0)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    r, p = tl.arange(0, R_BLOCK), tl.arange(0, P_BLOCK)
    C = R + P
    asked = query + (t * H + h[:, None]) * C
    in_R, in_P = (h < H)[:, None] & (r < R)[None, :], (h < H)[:, None] & (p < P)[None, :]
    q_R = tl.load(asked + r[None, :], mask=in_R, other=0.0).to(tl.float32)
    q_P = tl.load(asked + R + p[None, :], mask=in_P, other=0.0).to(tl.float32)
    most = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    weight = tl.zeros((BLOCK,), dtype=tl.float32)
    total = tl.zeros((BLOCK, R_BLOCK), dtype=tl.float32)
    for first in range(0, S, BLOCK):
        s = first + tl.arange(0, BLOCK)
        token = tl.load(chosen + t * S + s, mask=s < S, other=-1)
        there = token >= 0
        row = seen + tl.where(there, token, 0)[:, None] * C
        c = tl.load(row + r[None, :], mask=there[:, None] & (r < R)[None, :], other=0.0)
        c = c.to(tl.float32)
        b = tl.load(row + R + p[None, :], mask=there[:, None] & (p < P)[None, :], other=0.0)
        score = tl.dot(q_R, tl.trans(c), input_precision="ieee")
        score = tl.dot(q_P, tl.trans(b.to(tl.float32)), score, input_precision="ieee") * scale
        score = tl.where(there[None, :], score, float("-inf"))
        larger = tl.maximum(most, tl.max(score, axis=1))
        safe = tl.where(larger == float("-inf"), 0.0, larger)
        kept, share = tl.exp(most - safe), tl.exp(score - safe[:, None])
        weight = weight * kept + tl.sum(share, axis=1)
        total = tl.dot(share, c, total * kept[:, None], input_precision="ieee")
        most = larger
    said = total / weight[:, None]
    tl.store(out + (t * H + h[:, None]) * R + r[None, :], said.to(out.dtype.element_ty), mask=in_R)


def sparse_plain(
    query_THC: Tensor, seen_LC: Tensor, chosen_TS: Tensor, scale: float, R: int
) -> Tensor:
    """``sum softmax(q . c scale) c[:R]`` over the chosen tokens, -1 being none, [T, H, R]."""
    c_TSC = seen_LC[chosen_TS.clamp(min=0)].float()
    score_THS = query_THC.float() @ c_TSC.transpose(1, 2) * scale
    p_THS = score_THS.masked_fill((chosen_TS < 0)[:, None], -torch.inf).softmax(-1)
    return (p_THS @ c_TSC[..., :R]).to(query_THC.dtype)


def sparse(query_THC: Tensor, seen_LC: Tensor, chosen_TS: Tensor, scale: float, R: int) -> Tensor:
    """The same; no more than the chosen tokens is read."""
    T, H, C = query_THC.shape
    S, P = chosen_TS.shape[1], C - R
    query, seen, chosen = (x.contiguous() for x in (query_THC, seen_LC, chosen_TS))
    out = query.new_empty(T, H, R)
    blocks = {"R_BLOCK": R, "P_BLOCK": P}
    blocks = {name: max(16, triton.next_power_of_2(size)) for name, size in blocks.items()}
    grid = (T, triton.cdiv(H, _BLOCK))
    with torch.cuda.device_of(query):
        _attend[grid](query, seen, chosen, out, scale, H, S, R, P, BLOCK=_BLOCK, **blocks)
    return out
