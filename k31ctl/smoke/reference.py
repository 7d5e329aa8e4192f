"""The model's mathematics once more, in float64 and as the formulas stand: slow, and independent.

Nothing here is shared with the engine but the checkpoint's names. T tokens of one sequence from its
beginning, D width, H heads, K key channels, R latent rank, E experts. Sources: docs/engine.md.
"""

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor

from k31ctl.core.model import LinearAttention, SparseLatentAttention
from k31ctl.engine.config import Activation, EngineConfig, Router
from k31ctl.values import frozen

Read = Callable[[str], Tensor]
_UNIT_EPS: Final = 1e-6
_TINY: Final = 1e-20


@frozen
class Chosen:
    """An output, and by how much the choices in it were made: a token whose margin is within
    rounding may be decided otherwise."""

    out: Tensor
    margin: Tensor


def dequantised(packed: Tensor, scale: Tensor) -> Tensor:
    """MXFP4 from its bits: sign, two bits of exponent, one of mantissa, 2^(e - 127) for 32."""
    codes = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2).to(torch.int64)
    exponent, mantissa = (codes >> 1) & 3, (codes & 1).double()
    normal = (1 + mantissa / 2) * torch.exp2(exponent.double() - 1)
    magnitude = torch.where(exponent == 0, mantissa / 2, normal)
    value = torch.where(codes >= 8, -magnitude, magnitude)  # noqa: PLR2004  the bit of the sign
    power = torch.exp2(scale.double() - 127)
    power = torch.where(scale == 255, torch.nan, power)  # noqa: PLR2004  NaN in the format
    return value * power.repeat_interleave(32, dim=-1)


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``w x / sqrt(mean(x²) + eps)``."""
    return weight.double() * x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """``x Wᵀ``."""
    return x @ weight.to(x.device).double().T


def gated(gate: Tensor, up: Tensor, kind: Activation) -> Tensor:
    """SiTU, or SiLU where there are no bounds."""
    if kind.gate_bound is None:
        return gate * torch.sigmoid(gate) * up
    if kind.up_bound is not None:
        up = kind.up_bound * torch.tanh(up / kind.up_bound)
    return kind.gate_bound * torch.tanh(gate / kind.gate_bound) * torch.sigmoid(gate) * up


def mixed(rows: Tensor, norm: Tensor, proj: Tensor, eps: float) -> Tensor:
    """Attention Residuals: rows [T, N, D], the running sum last."""
    weight = (norm.double() * proj.double().flatten()).to(rows.device)
    score = (rows * weight).sum(-1) / torch.sqrt((rows * rows).mean(-1) + eps)
    return (score.softmax(-1)[..., None] * rows).sum(1)


def kda(x: Tensor, read: Read, *, eps: float, bound: float | None, is_full: bool) -> Tensor:
    """Kimi Delta Attention, token by token from an empty state."""
    d, H = len(read("o_norm.weight")), len(read("b_proj.weight"))
    q, k, v = (
        _convolved(product(x, read(f"{n}_proj.weight")), read(f"{n}_conv1d.weight")) for n in "qkv"
    )
    q, k, v = (part.view(len(x), H, d) for part in (q, k, v))
    q, k = (p / torch.sqrt((p * p).sum(-1, keepdim=True) + _UNIT_EPS) for p in (q, k))
    z = product(product(x, read("f_a_proj.weight")), read("f_b_proj.weight"))
    z = (z + _on(x, read("dt_bias"))).view(len(x), H, d)
    rate = torch.exp(_on(x, read("A_log")).flatten()[:H])[:, None]
    g = -rate * torch.log1p(torch.exp(z)) if bound is None else bound * torch.sigmoid(rate * z)
    beta = torch.sigmoid(product(x, read("b_proj.weight")))
    state, out = x.new_zeros(H, d, d), torch.empty_like(v)
    for t in range(len(x)):
        state = state * torch.exp(g[t])[..., None]
        delta = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][..., None] * delta[:, None, :]
        out[t] = torch.einsum("hkv,hk->hv", state, q[t]) * d**-0.5
    gate = (
        product(x, read("g_proj.weight"))
        if is_full
        else product(product(x, read("g_a_proj.weight")), read("g_b_proj.weight"))
    )
    normed = rms(out, _on(x, read("o_norm.weight")), eps).flatten(1)
    return product(normed * torch.sigmoid(gate), read("o_proj.weight"))


def _convolved(u: Tensor, taps: Tensor) -> Tensor:
    """Causal, by channel, the last tap being now; then SiLU."""
    taps = _on(u, taps).flatten(1)
    J = taps.shape[1]
    padded = torch.cat((u.new_zeros(J - 1, u.shape[1]), u))
    out = sum(padded[j : j + len(u)] * taps[:, j] for j in range(J))
    return out * torch.sigmoid(out)


def latent(
    x: Tensor,
    read: Read,
    has: Callable[[str], bool],
    *,
    heads: int,
    topk: int | None,
    lora_eps: float,
    index_eps: float,
) -> Chosen:
    """Latent attention with keys and values spelled out, over what an indexer selects."""
    T, R = len(x), len(read("kv_a_layernorm.weight"))
    low = x
    if has("q_a_proj.weight"):
        low = rms(
            product(x, read("q_a_proj.weight")), _on(x, read("q_a_layernorm.weight")), lora_eps
        )
        q = product(low, read("q_b_proj.weight"))
    else:
        q = product(x, read("q_proj.weight"))
    kv = product(x, read("kv_a_proj_with_mqa.weight"))
    c = rms(kv[:, :R], _on(x, read("kv_a_layernorm.weight")), lora_eps)
    q, spelled = q.view(T, heads, -1), product(c, read("kv_b_proj.weight")).view(T, heads, -1)
    N = q.shape[-1] - (kv.shape[1] - R)
    k = torch.cat((spelled[..., :N], kv[:, None, R:].expand(-1, heads, -1)), dim=-1)
    seen = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
    margin = x.new_full((T,), torch.inf)
    if topk is not None and has("indexer.wk.weight"):
        score = _index_scores(x, low, read, has, index_eps).masked_fill(~seen, -torch.inf)
        if topk < T:
            best = score.sort(dim=-1, descending=True, stable=True)  # of equals the earliest
            chosen = torch.zeros_like(seen).scatter(-1, best.indices[:, :topk], value=True)
            seen = seen & chosen
            gap = best.values[:, topk - 1] - best.values[:, topk]
            margin = torch.where(gap.isfinite(), gap, margin)
    score = torch.einsum("thx,shx->hts", q, k) * q.shape[-1] ** -0.5
    p = score.masked_fill(~seen, -torch.inf).softmax(-1)
    out = torch.einsum("hts,shv->thv", p, spelled[..., N:]).flatten(1)
    if has("g_proj.weight"):
        out = out * torch.sigmoid(product(x, read("g_proj.weight")))
    return Chosen(out=product(out, read("o_proj.weight")), margin=margin)


def _index_scores(
    x: Tensor, low: Tensor, read: Read, has: Callable[[str], bool], eps: float
) -> Tensor:
    weight = product(x, read("indexer.weights_proj.weight"))
    wq = read("indexer.wq_b.weight")
    query = product(low if wq.shape[1] == low.shape[1] else x, wq).view(len(x), weight.shape[1], -1)
    key = product(x, read("indexer.wk.weight"))
    key = key - key.mean(-1, keepdim=True)
    key = key / torch.sqrt((key * key).mean(-1, keepdim=True) + eps)
    key = key * _on(x, read("indexer.k_norm.weight"))
    if has("indexer.k_norm.bias"):
        key = key + _on(x, read("indexer.k_norm.bias"))
    score = torch.relu(torch.einsum("tyx,sx->tys", query, key))
    return (weight[..., None] * score).sum(1) * (query.shape[1] * query.shape[2]) ** -0.5


def mlp(x: Tensor, read: Read, kind: Activation) -> Tensor:
    """A dense layer, or the shared experts."""
    gate, up = product(x, read("gate_proj.weight")), product(x, read("up_proj.weight"))
    return product(gated(gate, up, kind), read("down_proj.weight"))


def expert(z: Tensor, read: Read, has: Callable[[str], bool], kind: Activation) -> Tensor:
    """One routed expert."""

    def weight(name: str) -> Tensor:
        if has(f"{name}.weight_packed"):
            return dequantised(read(f"{name}.weight_packed"), read(f"{name}.weight_scale"))
        return read(f"{name}.weight")

    return product(gated(product(z, weight("w1")), product(z, weight("w3")), kind), weight("w2"))


def moe(
    x: Tensor,
    read: Read,
    has: Callable[[str], bool],
    *,
    router: Router,
    kind: Activation,
    eps: float,
) -> Chosen:
    """Router, routed experts of each token, and the shared ones."""
    p = torch.sigmoid(product(x, read("gate.weight")))
    biased = p + _on(x, read("gate.e_score_correction_bias"))
    if router.num_groups > 1:
        groups = biased.unflatten(-1, (router.num_groups, -1))
        kept = groups.topk(2, dim=-1).values.sum(-1).topk(router.num_chosen_groups, dim=-1).indices
        closed = torch.ones_like(groups[..., 0], dtype=torch.bool).scatter(-1, kept, value=False)
        biased = groups.masked_fill(closed[..., None], -torch.inf).flatten(-2)
    K = router.num_chosen
    best = biased.topk(min(K + 1, router.num_experts), dim=-1)
    margin = x.new_full((len(x),), torch.inf)
    if router.num_experts > K:
        margin = best.values[:, K - 1] - best.values[:, K]
    chosen = best.indices[:, :K]
    weight = p.gather(-1, chosen)
    if router.renormalised:
        weight = weight / (weight.sum(-1, keepdim=True) + _TINY)
    weight = weight * router.scale
    z = (
        product(x, read("routed_expert_down_proj.weight"))
        if has("routed_expert_down_proj.weight")
        else x
    )
    y = torch.zeros_like(z)
    for number in chosen.unique().tolist():
        token, place = (chosen == number).nonzero(as_tuple=True)
        inside, there = _inside(read, has, f"experts.{number}.")
        y[token] += weight[token, place][:, None] * expert(z[token], inside, there, kind)
    if has("routed_expert_norm.weight"):
        y = rms(y, _on(x, read("routed_expert_norm.weight")), eps)
    if has("routed_expert_up_proj.weight"):
        y = product(y, read("routed_expert_up_proj.weight"))
    if has("shared_experts.gate_proj.weight"):
        y = y + mlp(x, _inside(read, has, "shared_experts.")[0], kind)
    return Chosen(out=y, margin=margin)


@frozen
class Stream:
    """What travels between layers, [T, D] and [T, N, D]."""

    live: Tensor
    snapshots: Tensor


def layer(
    stream: Stream, read: Read, has: Callable[[str], bool], config: EngineConfig, number: int
) -> tuple[Stream, Tensor]:
    """One layer over a stream, and the smallest margin of each token's choices."""
    eps, block, mixer = config.norm_eps, config.residual_block, config.mixers[number]
    live, kept = stream.live, stream.snapshots

    def entered(name: str, live: Tensor) -> Tensor:
        if not block or not kept.shape[1]:
            return live
        rows = torch.cat((kept, live[:, None]), dim=1)
        return mixed(rows, read(f"{name}_norm.weight"), read(f"{name}_proj.weight"), eps)

    h = rms(entered("self_attention_res", live), _on(live, read("input_layernorm.weight")), eps)
    is_first = bool(block) and number % block == 0
    if is_first:
        kept = torch.cat((kept, live[:, None]), dim=1)
    inside, there = _inside(read, has, "self_attn.")
    margin = live.new_full((len(live),), torch.inf)
    if isinstance(mixer, LinearAttention):
        said = kda(h, inside, eps=eps, bound=config.decay_bound, is_full=mixer.full_rank_gate)
    else:
        topk = mixer.indexer.topk if isinstance(mixer, SparseLatentAttention) else None
        shape = mixer.latent if isinstance(mixer, SparseLatentAttention) else mixer
        found = latent(
            h,
            inside,
            there,
            heads=shape.num_heads,
            topk=topk,
            lora_eps=1e-6,
            index_eps=config.index_norm_eps,
        )
        said, margin = found.out, found.margin
    live = said if is_first else live + said
    h = rms(entered("mlp_res", live), _on(live, read("post_attention_layernorm.weight")), eps)
    moe_shape = config.moe
    if number < config.num_dense_layers:
        live = live + mlp(h, _inside(read, has, "mlp.")[0], moe_shape.activation)
    else:
        inside, there = _inside(read, has, "block_sparse_moe.")
        found = moe(h, inside, there, router=moe_shape.router, kind=moe_shape.activation, eps=eps)
        live, margin = live + found.out, torch.minimum(margin, found.margin)
    return Stream(live=live, snapshots=kept), margin


def named(tensors: Mapping[str, Tensor]) -> tuple[Read, Callable[[str], bool]]:
    """Reading and asking of tensors that are here already."""
    return tensors.__getitem__, tensors.__contains__


def _inside(
    read: Read, has: Callable[[str], bool], prefix: str
) -> tuple[Read, Callable[[str], bool]]:
    return (lambda name: read(prefix + name)), (lambda name: has(prefix + name))


def _on(x: Tensor, weight: Tensor) -> Tensor:
    return weight.to(x.device).double()
