"""Latent attention without positions, gated or not, and sparse where an indexer selects tokens.

T new tokens, L tokens seen so far with the new ones, D width, H heads, Q query rank, R latent rank,
P unrotated key channels beside the latent, N and V key and value channels, C = R + P, X index
channels, Y index heads.
Sources: DeepSeek-V2, arXiv:2405.04434, section 2.1; DeepSeek-V3.2, arXiv:2512.02556, section 2.1.
"""

import torch
from torch import Tensor
from torch.nn import functional

from k31ctl.core.model import Indexer, LatentAttention
from k31ctl.engine.config import LORA_NORM_EPS
from k31ctl.engine.kernels import choice
from k31ctl.engine.linear import Linear, rms_norm
from k31ctl.engine.ranking import highest
from k31ctl.engine.tensors import Target, Tensors
from k31ctl.values import frozen

# Up to so many new tokens the scores are taken in the latent space; beyond it, spelling out keys
# and values once is cheaper than wider products for every token.
ABSORBED_UP_TO = 8


def index_scores(query_TYX: Tensor, weight_TY: Tensor, key_LX: Tensor) -> Tensor:
    """What an indexer thinks of every earlier token, [T, L] in float32; causality is not applied.

    Formula: sum_y w[t,y] relu(q[t,y] . k[s]) / sqrt(X Y)
    """
    Y, X = query_TYX.shape[1:]
    query, key_XL = query_TYX.float(), key_LX.float().T
    weight = weight_TY.float() * (X * Y) ** -0.5
    if len(query) == 1:
        return weight @ torch.relu(query[0] @ key_XL)
    score = query.new_zeros(len(query), key_XL.shape[1])
    for y in range(Y):  # head by head: all at once would be T x Y x L numbers
        score.addcmul_(torch.relu(query[:, y] @ key_XL), weight[:, y, None])
    return score


def seen_mask(T: int, L: int, device: torch.device) -> Tensor:
    """Which of L tokens each of the last T may look at, [T, L]."""
    return torch.ones(T, L, dtype=torch.bool, device=device).tril(L - T)


def selected_mask(score_TL: Tensor, *, topk: int) -> Tensor:
    """The ``topk`` best earlier tokens of each query, [T, L]; all while there are no more.

    Of equally good ones the earliest.
    """
    T, L = score_TL.shape
    seen = seen_mask(T, L, score_TL.device)
    if topk >= L:
        return seen
    best = highest(score_TL.masked_fill(~seen, -torch.inf), topk)
    return torch.zeros_like(seen).scatter(-1, best, value=True) & seen


def attend_expanded(
    q_THQ: Tensor, seen_LC: Tensor, kv_b: Linear, shape: LatentAttention, mask_TL: Tensor | None
) -> Tensor:
    """Attention over keys and values spelled out for every head, [T, H, V].

    Without a mask a token sees all, and several, which are then all there are, what is before them.
    """
    H, N, V, R = shape.num_heads, shape.qk_nope_head_dim, shape.v_head_dim, shape.kv_lora_rank
    L = len(seen_LC)
    k_LHN, v_LHV = kv_b(seen_LC[:, :R]).view(L, H, N + V).split((N, V), dim=-1)
    k = torch.cat((k_LHN, seen_LC[:, None, R:].expand(-1, H, -1)), dim=-1)
    # Values as wide as keys: only then does the blockwise kernel of torch apply on a CPU.
    v = functional.pad(v_LHV, (0, k.shape[-1] - V)) if k.shape[-1] > V else v_LHV
    out = functional.scaled_dot_product_attention(
        q_THQ.transpose(0, 1)[None],
        k.transpose(0, 1)[None],
        v.transpose(0, 1)[None],
        attn_mask=None if mask_TL is None else mask_TL[None, None],
        is_causal=mask_TL is None and len(q_THQ) > 1,
        scale=q_THQ.shape[-1] ** -0.5,
    )
    return out[0, ..., :V].transpose(0, 1)


def absorbed_query(q_THQ: Tensor, up_HNR: Tensor) -> Tensor:
    """Queries that meet cache entries as they are, [T, H, C]: the key projection goes to them."""
    N = up_HNR.shape[1]
    low_HTR = q_THQ[..., :N].transpose(0, 1) @ up_HNR
    return torch.cat((low_HTR.transpose(0, 1), q_THQ[..., N:]), dim=-1)


def attend_absorbed(
    q_THC: Tensor, seen_LC: Tensor, mask_TL: Tensor | None, *, rank: int, scale: float
) -> Tensor:
    """Attention in the latent space, [T, H, R]; what it gives is still to be read as values.

    Formula: score = scale (q_N U_h . c + q_P . r); o_h = V_h sum p c
    """
    score_HTL = (q_THC.transpose(0, 1) @ seen_LC.T).float() * scale
    if mask_TL is not None:
        score_HTL = score_HTL.masked_fill(~mask_TL, -torch.inf)
    p_HTL = score_HTL.softmax(-1).to(seen_LC.dtype)
    return (p_HTL @ seen_LC[:, :rank]).transpose(0, 1)


@frozen
class Projected:
    """What latent attention takes from its input: queries, cache entries, gate, index parts.

    ``q_THC`` are the queries for the latent space, and the only ones where it is there.
    """

    q_THQ: Tensor
    q_THC: Tensor | None
    entry_TC: Tensor
    gate_TO: Tensor | None
    index_q_TYX: Tensor | None
    index_w_TY: Tensor | None
    index_key_TX: Tensor | None


class IndexerWeights:
    """The indexer's own matrices.

    Its query reads the q-LoRA vector, or the input where the matrix is as wide as that; its key
    norm has a bias or none: no public file of the release says which.
    """

    def __init__(
        self,
        tensors: Tensors,
        shape: Indexer,
        *,
        hidden: int,
        rank: int | None,
        eps: float,
        target: Target,
    ) -> None:
        Y, X = shape.num_heads, shape.head_dim
        self.shape, self._eps = shape, eps
        name = "wq_b.weight"
        low = rank is not None and name in tensors and tensors[name].shape[-1] == rank
        self.reads_input, width = not low, rank if low and rank else hidden
        self.query = Linear([tensors.take("wq_b.weight", Y * X, width)], target)
        self.from_input = [
            tensors.take("wk.weight", X, hidden),
            tensors.take("weights_proj.weight", Y, hidden),
        ]
        self._norm_X = target.exact(tensors.take("k_norm.weight", X))
        self._bias_X = None
        if "k_norm.bias" in tensors:
            self._bias_X = target.exact(tensors.take("k_norm.bias", X))

    def key(self, key_TX: Tensor) -> Tensor:
        """The key that is cached."""
        normed = functional.layer_norm(
            key_TX.float(), key_TX.shape[-1:], self._norm_X, self._bias_X, self._eps
        )
        return normed.to(key_TX.dtype)


class LatentLayer:
    """Projections, the cache entry of each token, and attention over what was seen."""

    def __init__(
        self,
        tensors: Tensors,
        shape: LatentAttention,
        indexer: Indexer | None,
        *,
        hidden: int,
        index_norm_eps: float,
        target: Target,
    ) -> None:
        self._shape, self._uses_triton = shape, choice(target).uses_triton
        H, R, P, N = (
            shape.num_heads,
            shape.kv_lora_rank,
            shape.qk_rope_head_dim,
            shape.qk_nope_head_dim,
        )
        V, Q = shape.v_head_dim, shape.q_lora_rank
        q_name = "q_proj.weight" if Q is None else "q_a_proj.weight"
        taken = [tensors.take(q_name, H * (N + P) if Q is None else Q, hidden)]
        taken += [tensors.take("kv_a_proj_with_mqa.weight", R + P, hidden)]
        self._q_b = self._q_norm = self._index = None
        if Q is not None:
            self._q_norm = target.exact(tensors.take("q_a_layernorm.weight", Q))
            self._q_b = Linear([tensors.take("q_b_proj.weight", H * (N + P), Q)], target)
        self._kv_norm = target.exact(tensors.take("kv_a_layernorm.weight", R))
        if shape.output_gate:
            taken += [tensors.take("g_proj.weight", H * V, hidden)]
        if indexer is not None:
            self._index = IndexerWeights(
                tensors.inside("indexer"),
                indexer,
                hidden=hidden,
                rank=Q,
                eps=index_norm_eps,
                target=target,
            )
            taken += self._index.from_input
        self._in = Linear(taken, target)
        kv_b = tensors.take("kv_b_proj.weight", H * (N + V), R)
        self._kv_b = Linear([kv_b], target)
        up, out = target.weight(kv_b).view(H, N + V, R).split((N, V), dim=1)
        self._up_HNR, self._out_HRV = up.contiguous(), out.transpose(1, 2).contiguous()
        self._out = Linear([tensors.take("o_proj.weight", hidden, H * V)], target)

    def project(self, x_TD: Tensor, *, absorbed: bool) -> Projected:
        """Everything that depends on the new tokens alone.

        ``absorbed`` chooses the form of the same attention, for all of them.
        """
        T, shape = len(x_TD), self._shape
        q, kv, *rest = self._in.split(x_TD)
        low = q
        if self._q_b is not None and self._q_norm is not None:
            low = rms_norm(q, self._q_norm, LORA_NORM_EPS)
            q = self._q_b(low)
        latent = rms_norm(kv[:, : shape.kv_lora_rank], self._kv_norm, LORA_NORM_EPS)
        gate = rest.pop(0) if shape.output_gate else None
        index_q = index_key = index_w = None
        if self._index is not None:
            key, index_w = rest
            index_q = self._index.query(x_TD if self._index.reads_input else low)
            index_q = index_q.view(T, self._index.shape.num_heads, -1)
            index_key = self._index.key(key)
        q_THQ = q.view(T, shape.num_heads, -1)
        return Projected(
            q_THQ=q_THQ,
            q_THC=absorbed_query(q_THQ, self._up_HNR) if absorbed else None,
            entry_TC=torch.cat((latent, kv[:, shape.kv_lora_rank :]), dim=-1),
            gate_TO=gate,
            index_q_TYX=index_q,
            index_w_TY=index_w,
            index_key_TX=index_key,
        )

    def attend(
        self, new: Projected, rows: slice, seen_LC: Tensor, seen_key_LX: Tensor | None
    ) -> Tensor:
        """Attention of some new tokens of one sequence: [T, H, V], or absorbed [T, H, R]."""
        q_THQ, q_THC = new.q_THQ[rows], None if new.q_THC is None else new.q_THC[rows]
        T, L = len(q_THQ), len(seen_LC)
        is_plain = T == 1 or (q_THC is None and T == L)
        mask = None if is_plain else seen_mask(T, L, q_THQ.device)
        if self._index is not None and self._index.shape.topk < L:
            assert new.index_q_TYX is not None
            assert new.index_w_TY is not None
            assert seen_key_LX is not None
            topk = self._index.shape.topk
            query, weight = new.index_q_TYX[rows], new.index_w_TY[rows]
            if self._uses_triton:
                absorbed = absorbed_query(q_THQ, self._up_HNR) if q_THC is None else q_THC
                said_THR = self._attend_chosen(absorbed, query, weight, seen_key_LX, seen_LC)
                return self._values(said_THR) if q_THC is None else said_THR
            score = index_scores(query, weight, seen_key_LX)
            if T == 1:  # the others need not be read at all
                seen_LC, mask = seen_LC[highest(score, topk)[0]], None
            else:
                mask = selected_mask(score, topk=topk)
        if q_THC is None:
            return attend_expanded(q_THQ, seen_LC, self._kv_b, self._shape, mask)
        rank, scale = self._shape.kv_lora_rank, q_THQ.shape[-1] ** -0.5
        return attend_absorbed(q_THC, seen_LC, mask, rank=rank, scale=scale)

    def _attend_chosen(
        self, q_THC: Tensor, query: Tensor, weight: Tensor, key_LX: Tensor, seen_LC: Tensor
    ) -> Tensor:
        """Scores, choice and attention by kernels that read the chosen tokens alone, [T, H, R]."""
        from k31ctl.engine.kernels.index import index_scores as scores  # noqa: PLC0415 - Triton
        from k31ctl.engine.kernels.sparse import sparse  # noqa: PLC0415

        assert self._index is not None
        T, L, shape = len(q_THC), len(seen_LC), self._shape
        score = scores(query, weight, key_LX)
        score.masked_fill_(~seen_mask(T, L, score.device), -torch.inf)
        chosen_TS = highest(score, self._index.shape.topk)
        chosen_TS = chosen_TS.masked_fill(score.gather(-1, chosen_TS) == -torch.inf, -1)
        scale = (shape.qk_nope_head_dim + shape.qk_rope_head_dim) ** -0.5
        return sparse(q_THC, seen_LC, chosen_TS, scale, shape.kv_lora_rank)

    def _values(self, said_THR: Tensor) -> Tensor:
        """Latents that each head attended to as its values, [T, H, V]."""
        return (said_THR.transpose(0, 1) @ self._out_HRV).transpose(0, 1)

    def finish(self, attended: Tensor, new: Projected) -> Tensor:
        """Values, the gate and the output projection of what ``attend`` gave."""
        attended_THV = attended if new.q_THC is None else self._values(attended)
        attended_TO = attended_THV.flatten(1)
        if new.gate_TO is not None:
            attended_TO = attended_TO * torch.sigmoid(new.gate_TO)
        return self._out(attended_TO)
