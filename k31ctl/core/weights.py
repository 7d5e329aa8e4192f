"""Weight bytes on each rank, by pipeline stage: what is divided, what every rank repeats."""

from k31ctl.core.engine import DataParallel, Engine, for_gpu
from k31ctl.core.layout import Layout, stage_bounds
from k31ctl.core.model import Model, WeightFormat
from k31ctl.core.tallies import DIVIDED, Family, tallies
from k31ctl.core.tensors import Shard, TensorTemplate
from k31ctl.values import frozen


@frozen
class StageWeights:
    """Bytes that each rank of one stage loads, by how they are divided.

    ``padding_bytes`` is the part of the routed experts that holds no weights: kernels want the
    width of a rank's share rounded up.
    """

    stage: int
    first_layer: int
    end_layer: int
    by_shard: dict[Shard, int]
    padding_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes that one rank of the stage holds."""
        return sum(self.by_shard.values())


def expert_width_on_rank(model: Model, *, engine: Engine, layout: Layout, gpu: str) -> int:
    """Columns of one expert that a rank holds, rounded up as the engine's kernels want it.

    Only 4-bit experts that are divided are padded.
    Source: vLLM 0.33.0 model_executor/layers/fused_moe/oracle/mxfp4.py.
    """
    assert model.experts is not None
    share = model.experts.moe_intermediate_size // layout.expert_tp
    table = engine.memory.expert_width_multiple
    if model.experts.format is not WeightFormat.MXFP4 or layout.ep > 1 or not table:
        return share
    multiple = for_gpu(table, gpu)
    return -(-share // multiple) * multiple


def stage_weights(
    model: Model, *, engine: Engine, layout: Layout, gpu: str
) -> tuple[StageWeights, ...]:
    """Weight bytes of one rank in each pipeline stage, first stage first."""
    bounds = stage_bounds(model.num_layers, layout)
    experts = expert_layers(model, engine=engine, layout=layout, gpu=gpu)
    ways = all_ways(engine, layout)
    return tuple(
        _one_stage(model, layout, experts, ways, stage, first, end)
        for stage, (first, end) in enumerate(bounds)
    )


def all_ways(engine: Engine, layout: Layout) -> tuple[int, ...]:
    """Over how many ranks each kind of tensor but experts is divided, as ``DIVIDED`` lists them."""
    return tuple(shard_ways(shard, engine, layout) for shard in DIVIDED)


def expert_layers(
    model: Model, *, engine: Engine, layout: Layout, gpu: str
) -> tuple[tuple[Family, int, int], ...]:
    """Families of routed experts with the bytes of one layer on the fullest rank: plain, padded."""
    counted = tallies(model)
    if not counted.experts:
        return ()
    width = expert_width_on_rank(model, engine=engine, layout=layout, gpu=gpu)
    key = (layout.ep, layout.expert_tp, width, engine.memory.expert_hidden_multiple)
    found = counted.known_experts.get(key)
    if found is None:
        pairs = [
            (family, [layer_expert_bytes(model, t, engine, layout, gpu) for t in family.templates])
            for family in counted.experts
        ]
        found = counted.known_experts[key] = tuple(
            (family, sum(plain for plain, _ in each), sum(padded for _, padded in each))
            for family, each in pairs
        )
    return found


def _one_stage(
    model: Model,
    layout: Layout,
    experts: tuple[tuple[Family, int, int], ...],
    ways: tuple[int, ...],
    stage: int,
    first: int,
    end: int,
) -> StageWeights:
    sums = tallies(model).stage_sums(first, end, stage=stage, num_stages=layout.pp, ways=ways)
    by_shard = dict(sums.by_shard)
    padding = 0
    for family, plain, padded in experts:
        count = family.on_stage(first, end, stage=stage, num_stages=layout.pp)
        by_shard[family.shard] += count * padded
        padding += count * (padded - plain)
    return StageWeights(
        stage=stage, first_layer=first, end_layer=end, by_shard=by_shard, padding_bytes=padding
    )


def shard_ways(shard: Shard, engine: Engine, layout: Layout) -> int:
    """Over how many ranks a tensor is divided."""
    rules = engine.layout
    attention_dp = layout.data_parallel is DataParallel.ATTENTION and layout.dp > 1
    if shard is Shard.REPLICATED:
        return 1
    if shard is Shard.ATTENTION:
        return layout.attention_tp
    if attention_dp and rules.dense_replicated_under_attention_dp:
        return 1
    if shard is Shard.SHARED and (
        attention_dp or (layout.ep > 1 and not rules.shared_experts_sharded_under_ep)
    ):
        return 1
    return layout.tp


def layer_expert_bytes(
    model: Model, t: TensorTemplate, engine: Engine, layout: Layout, gpu: str
) -> tuple[int, int]:
    """Bytes of one layer's share of an expert tensor on the fullest rank: plain, and padded."""
    experts = model.experts
    assert experts is not None
    per_rank = -(-experts.num_experts // layout.ep)
    share = -(-t.tensor_bytes // layout.expert_tp)
    width = expert_width_on_rank(model, engine=engine, layout=layout, gpu=gpu)
    padded = t.tensor_bytes * width // experts.moe_intermediate_size
    if experts.format is WeightFormat.MXFP4:
        step = engine.memory.expert_hidden_multiple
        hidden = -(-experts.hidden_size // step) * step
        padded = padded * hidden // experts.hidden_size
    return per_rank * share, per_rank * max(share, padded)
