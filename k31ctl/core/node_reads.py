"""Which bytes of a checkpoint the nodes of a deployment read."""

from k31ctl.core.engine import DataParallel, Engine
from k31ctl.core.layout import Layout, stage_bounds
from k31ctl.core.model import Model
from k31ctl.core.tensors import Group, Place, Shard, TensorTemplate
from k31ctl.core.weights import shard_ways

# Rank of a tensor-parallel group, rank among those that share the experts of a stage.
Seat = tuple[int, int]


def node_read_bytes(model: Model, *, engine: Engine, layout: Layout) -> float:
    """Bytes that the node with the most of them reads, each once however many ranks hold it.

    Ranks fill the nodes in order: tensor-parallel ranks first, then pipeline stages, then groups
    of data parallelism.
    Formula: sum over stages on the node and tensors of the stage, bytes x distinct shards / ways.
    """
    return max(_read_bytes(model, engine, layout, seats) for seats in _nodes(layout))


def _nodes(layout: Layout) -> list[dict[int, list[Seat]]]:
    """The seats on each node that the layout uses, by pipeline stage."""
    groups = layout.world // (layout.tp * layout.pp)
    ranks = [
        (stage, (tp, group * layout.tp + tp))
        for group in range(groups)
        for stage in range(layout.pp)
        for tp in range(layout.tp)
    ]
    nodes: list[dict[int, list[Seat]]] = []
    for first in range(0, len(ranks), layout.gpus_per_node):
        seats: dict[int, list[Seat]] = {}
        for stage, seat in ranks[first : first + layout.gpus_per_node]:
            seats.setdefault(stage, []).append(seat)
        nodes.append(seats)
    return nodes


def _read_bytes(
    model: Model, engine: Engine, layout: Layout, seats: dict[int, list[Seat]]
) -> float:
    bounds = stage_bounds(model.num_layers, layout)
    total = 0.0
    for stage, ranks in seats.items():
        first, end = bounds[stage]
        for t in model.templates:
            count = _tensors_on_stage(t, first, end, stage=stage, num_stages=layout.pp)
            if not count or t.group is Group.MTP:
                continue
            num_bytes = count * t.tensors_per_layer * t.tensor_bytes
            total += num_bytes * _distinct_share(t.shard, engine, layout, ranks)
    return total


def _tensors_on_stage(
    t: TensorTemplate, first: int, end: int, *, stage: int, num_stages: int
) -> int:
    """Layers of the family on a stage (1 for a tensor that the stage holds once)."""
    match t.place:
        case Place.FIRST:
            return int(stage == 0)
        case Place.LAST:
            return int(stage == num_stages - 1)
        case Place.LAYER:
            return sum(first <= layer < end for layer in t.layers)


def _distinct_share(shard: Shard, engine: Engine, layout: Layout, ranks: list[Seat]) -> float:
    """Share of a tensor that some rank of the node holds."""
    if shard is Shard.EXPERT:
        spread = layout.expert_world
        return len({expert % spread for _, expert in ranks}) / spread
    ways = shard_ways(shard, engine, layout)
    assert layout.data_parallel is DataParallel.ATTENTION or ways <= layout.tp
    return len({tp % ways for tp, _ in ranks}) / ways
