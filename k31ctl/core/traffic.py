"""What one step moves and computes on one rank of each pipeline stage, before any rate is known.

Everything here is counted from the model and the layout; no figure is measured or assumed.
"""

from k31ctl.core.cache_plan import CacheRows
from k31ctl.core.draft import Draft
from k31ctl.core.engine import Engine
from k31ctl.core.layout import Layout
from k31ctl.core.model import Model
from k31ctl.core.tallies import Family, once_per_object, tallies
from k31ctl.core.tensors import Group
from k31ctl.core.weights import all_ways, expert_layers, expert_width_on_rank
from k31ctl.values import frozen

BF16_BYTES = 2
FLOPS_PER_WEIGHT = 2


@frozen
class StageTraffic:
    """Counts of one rank of one stage.

    ``dense_bytes`` and ``dense_params`` are the weights that every token uses, routed experts and
    output head left out. ``expert_bytes`` is one expert of one layer as the rank holds it, padded;
    ``expert_flops`` what one token's chosen experts cost an average rank, over all layers.
    """

    num_layers: int
    full_layers: int
    linear_layers: int
    moe_layers: int
    dense_bytes: float
    dense_params: float
    head_bytes: float
    head_params: float
    expert_bytes: float
    expert_flops: float


@frozen
class Traffic:
    """Counts of a whole deployment.

    ``attention_pair_flops`` is for one query against one cached token in one layer on one rank, in
    the absorbed form that decoding uses; ``prefill_pair_flops`` in the plain form of prefill.
    ``state_bytes`` is read and written once a step for each sequence and linear layer.
    ``context_parallel_bytes`` is what decode-context parallelism gathers and scatters for a token
    in one layer: queries and outputs of all its ranks' heads, in the latent space.
    """

    stages: tuple[StageTraffic, ...]
    hidden_bytes: int
    latent_row_bytes: float
    index_row_bytes: float
    topk: int | None
    attention_pair_flops: float
    prefill_pair_flops: float
    index_pair_flops: float
    state_bytes: float
    state_token_flops: float
    num_experts: int
    experts_per_token: int
    local_experts: int
    expert_ranks: int
    attention_ranks: int
    context_parallel_bytes: float
    draft_bytes: float
    draft_params: float
    vision_params: float

    @property
    def num_layers(self) -> int:
        """Layers of all stages."""
        return sum(stage.num_layers for stage in self.stages)


def traffic(
    model: Model,
    *,
    engine: Engine,
    layout: Layout,
    gpu: str,
    rows: CacheRows,
    bounds: tuple[tuple[int, int], ...],
    draft: Draft | None,
) -> Traffic:
    """Count what a step moves and computes.

    Symbols: H heads on a rank, R kv_lora_rank, P rope, N nope and V value dims, I index heads,
    D index head dim, d linear head dim.
    Formula: absorbed attention 2 H (2R + P) FLOP per query and key, plain 2 H (N + P + V); index
    scores 2 I D; the delta rule about 8 H d d FLOP per token.
    Source: DeepSeek-V2, arXiv:2405.04434; Kimi Linear, arXiv:2510.26692.
    """
    latent, indexer, linear, experts = model.latent, model.indexer, model.linear, model.experts
    H = latent.num_heads / layout.attention_tp
    R, P = latent.kv_lora_rank, latent.qk_rope_head_dim
    N, V = latent.qk_nope_head_dim, latent.v_head_dim
    index_ways = layout.dcp if engine.layout.index_keys_divided_by_dcp else 1
    d = linear.head_dim if linear else 0
    linear_heads = linear.num_heads / layout.attention_tp if linear else 0.0
    routed = expert_layers(model, engine=engine, layout=layout, gpu=gpu)
    ways = all_ways(engine, layout)
    flops = _expert_flops(model, engine, layout, gpu)
    return Traffic(
        stages=tuple(
            _stage(model, layout, routed, ways, flops, stage, first, end)
            for stage, (first, end) in enumerate(bounds)
        ),
        hidden_bytes=model.hidden_size * BF16_BYTES,
        latent_row_bytes=rows.latent_bytes / layout.dcp,
        index_row_bytes=rows.index_bytes / index_ways,
        topk=indexer.topk if indexer else None,
        attention_pair_flops=2 * H * (2 * R + P),
        prefill_pair_flops=2 * H * (N + P + V),
        index_pair_flops=2.0 * indexer.num_heads * indexer.head_dim if indexer else 0.0,
        state_bytes=float(rows.state_bytes),
        state_token_flops=8 * linear_heads * d * d,
        num_experts=experts.num_experts if experts else 0,
        experts_per_token=experts.num_experts_per_tok if experts else 0,
        local_experts=-(-experts.num_experts // layout.ep) if experts else 0,
        expert_ranks=layout.ep,
        attention_ranks=layout.attention_tp,
        context_parallel_bytes=BF16_BYTES * H * layout.dcp * (2 * R + P),
        draft_bytes=draft.weight_bytes / layout.attention_tp if draft else 0.0,
        draft_params=draft.weight_bytes / BF16_BYTES / layout.attention_tp if draft else 0.0,
        vision_params=_vision_params(model),
    )


@once_per_object
def _vision_params(model: Model) -> float:
    vision = (Group.VISION, Group.PROJECTOR)
    return float(sum(t.num_tensors * t.params for t in model.templates if t.group in vision))


def _stage(
    model: Model,
    layout: Layout,
    experts: tuple[tuple[Family, int, int], ...],
    ways: tuple[int, ...],
    expert_flops: float,
    stage: int,
    first: int,
    end: int,
) -> StageTraffic:
    counted = tallies(model)
    sums = counted.stage_sums(first, end, stage=stage, num_stages=layout.pp, ways=ways)
    expert_bytes = sum(
        padded
        for family, _, padded in experts
        if family.on_stage(first, end, stage=stage, num_stages=layout.pp)
    )
    moe = counted.moe_before[end] - counted.moe_before[first]
    local = -(-model.experts.num_experts // layout.ep) if model.experts else 1
    return StageTraffic(
        num_layers=end - first,
        full_layers=counted.full_before[end] - counted.full_before[first],
        linear_layers=counted.linear_before[end] - counted.linear_before[first],
        moe_layers=moe,
        dense_bytes=sums.dense_bytes,
        dense_params=sums.dense_params,
        head_bytes=sums.head_bytes,
        head_params=sums.head_params,
        expert_bytes=expert_bytes / local,
        expert_flops=moe * expert_flops,
    )


def _expert_flops(model: Model, engine: Engine, layout: Layout, gpu: str) -> float:
    """Operations of one token's experts in one layer on an average rank, padded width included."""
    experts = model.experts
    if experts is None:
        return 0.0
    width = expert_width_on_rank(model, engine=engine, layout=layout, gpu=gpu)
    chosen = experts.num_experts_per_tok / layout.ep
    return FLOPS_PER_WEIGHT * chosen * 3 * width * experts.hidden_size
