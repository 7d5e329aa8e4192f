"""Where the memory of each GPU goes: fixed lines by stage, and what they leave for the cache."""

from k31ctl.core.draft import Draft
from k31ctl.core.engine import Engine, MemoryRule, Number, Size, for_gpu
from k31ctl.core.figure import Basis, Line, merged
from k31ctl.core.hardware import Node
from k31ctl.core.layout import Layout
from k31ctl.core.model import Model
from k31ctl.core.tensors import Shard
from k31ctl.core.weights import StageWeights
from k31ctl.values import frozen

MIB = 1 << 20
GIB = 1 << 30
REFERENCE_HIDDEN_SIZE = 7168


@frozen
class Reservation:
    """What the engine is told to reserve and to use, settled before any stage is looked at."""

    chunk_tokens: int
    fraction: Number
    fraction_asked: bool
    with_vision: bool


@frozen
class StageMemory:
    """One rank of one stage: capacity, the lines that are there before any request, the pool."""

    stage: int
    first_layer: int
    end_layer: int
    capacity_bytes: int
    fixed: tuple[Line, ...]
    pool_bytes: int
    beside_pool_bytes: int

    @property
    def fixed_bytes(self) -> int:
        """Bytes taken before the first request."""
        return sum(line.num_bytes for line in self.fixed)

    def line_bytes(self, key: str) -> int:
        """Bytes of the lines with this key; none is 0."""
        return sum(line.num_bytes for line in self.fixed if line.key == key)


def reservation(
    model: Model,
    *,
    engine: Engine,
    node: Node,
    layout: Layout,
    chunk_tokens: int | None,
    memory_fraction: float | None,
    text_only: bool,
) -> Reservation:
    """Chunk size and memory fraction: what was asked, else the engine's own default."""
    chunk = chunk_tokens or for_gpu(engine.memory.chunk_tokens, _size_class(node))
    vision = model.vision is not None and not text_only
    if memory_fraction is not None:
        fraction = Number(
            value=memory_fraction, why="given", source="--memory-fraction", basis=Basis.EXACT
        )
    else:
        fraction = _default_fraction(engine, node, layout, chunk, vision=vision)
    return Reservation(
        chunk_tokens=chunk,
        fraction=fraction,
        fraction_asked=memory_fraction is not None,
        with_vision=vision,
    )


def _size_class(node: Node) -> str:
    return "160GiB" if node.gpu.memory_bytes >= 160 * GIB else "default"


def _default_fraction(
    engine: Engine, node: Node, layout: Layout, chunk: int, *, vision: bool
) -> Number:
    memory = engine.memory
    if memory.rule is not MemoryRule.SGLANG_POOLS:
        if vision and memory.fraction_with_vision is not None:
            return memory.fraction_with_vision
        return memory.fraction
    # SGLang reserves for a chunk, for graphs of 512 decode slots and for communication, at
    # least 10 GB, and lowers the fraction for a vision model.
    reserve = 512 + 1.5 * max(chunk, 2048) + layout.tp * layout.pp / 8 * 1024 + 2 * 512 + 1536
    total = node.gpu.memory_bytes / MIB
    value = (total - max(reserve, 10 * 1024)) / total
    if vision:
        value *= memory.fraction.value
    return Number(
        value=round(value, 3),
        why="SGLang's own reserve formula, lowered for the vision encoder",
        source=memory.fraction.source,
        basis=Basis.DERIVED,
    )


def stage_memory(
    weights: StageWeights,
    *,
    engine: Engine,
    node: Node,
    layout: Layout,
    reserved: Reservation,
    reserved_lines: tuple[Line, ...],
    weight_bases: tuple[Basis, ...],
    resident_expert_bytes: int | None,
    draft: Draft | None,
    extra: tuple[Line, ...],
) -> StageMemory:
    """The budget of one rank of a stage before requests, and the pool that the engine makes."""
    fixed = (
        *_weight_lines(weights, weight_bases, resident_expert_bytes),
        *_draft_lines(draft, layout, weights),
        *reserved_lines,
        *extra,
    )
    capacity = node.gpu.memory_bytes
    pool = _pool_bytes(engine, capacity, fixed, reserved.fraction.value)
    taken = sum(line.num_bytes for line in fixed)
    return StageMemory(
        stage=weights.stage,
        first_layer=weights.first_layer,
        end_layer=weights.end_layer,
        capacity_bytes=capacity,
        fixed=fixed,
        pool_bytes=pool,
        beside_pool_bytes=capacity - taken - max(0, pool),
    )


def _weight_lines(
    weights: StageWeights, bases: tuple[Basis, ...], resident: int | None
) -> tuple[Line, ...]:
    total = weights.total_bytes
    if resident is not None:
        total += resident - weights.by_shard[Shard.EXPERT]
    source = "inventory, divided as the engine divides it"
    if weights.padding_bytes:
        source += f"; {weights.padding_bytes / GIB:.2f} GiB of it pads the experts' width"
    return (
        Line(
            key="weights_bytes",
            label="weights",
            num_bytes=total,
            bases=merged(*bases, Basis.DERIVED),
            source=source,
        ),
    )


def _draft_lines(draft: Draft | None, layout: Layout, weights: StageWeights) -> tuple[Line, ...]:
    if draft is None or weights.stage != layout.pp - 1:
        return ()
    return (
        Line(
            key="draft_bytes",
            label="draft model",
            num_bytes=-(-draft.weight_bytes // layout.attention_tp),
            bases=merged(Basis.DERIVED, draft.basis),
            source=draft.source,
        ),
    )


def reserved_lines(
    model: Model, engine: Engine, node: Node, reserved: Reservation, *, first: bool
) -> tuple[Line, ...]:
    """The engine's own reservations on a rank of the first stage, or of any other."""
    memory, gpu = engine.memory, node.gpu.architecture
    lines = [
        activation_line(model, engine, chunk_tokens=reserved.chunk_tokens),
        _sized("graphs_bytes", "CUDA graphs", for_gpu(memory.graphs, gpu)),
    ]
    if model.experts is not None and model.experts.format.value == "mxfp4":
        lines.append(_sized("workspace_bytes", "MoE workspace", for_gpu(memory.moe_workspace, gpu)))
    lines.append(_sized("communication_bytes", "communication", for_gpu(memory.communication, gpu)))
    if reserved.with_vision and first:
        lines.append(_sized("vision_bytes", "vision encoder", for_gpu(memory.vision_encoder, gpu)))
    lines.append(_sized("context_bytes", "driver context", for_gpu(memory.context, gpu)))
    return tuple(line for line in lines if line.num_bytes)


def activation_line(model: Model, engine: Engine, *, chunk_tokens: int) -> Line:
    """What one chunk of a prompt needs while it is computed, scaled by the model's width."""
    per_token = engine.memory.activation_per_chunk_token
    activations = per_token.bytes * chunk_tokens * model.hidden_size
    return Line(
        key="activations_bytes",
        label="activations",
        num_bytes=activations // REFERENCE_HIDDEN_SIZE,
        bases=merged(Basis.DERIVED, per_token.basis),
        source=per_token.source,
        assumption="activations",
    )


def _sized(key: str, label: str, size: Size) -> Line:
    return Line(
        key=key,
        label=label,
        num_bytes=size.bytes,
        bases=(size.basis,),
        source=size.source,
        assumption=key.removesuffix("_bytes"),
    )


def _pool_bytes(engine: Engine, capacity: int, fixed: tuple[Line, ...], fraction: float) -> int:
    """Bytes that the engine gives its cache; negative where nothing is left.

    vLLM: fraction of the total, less all that it sees (the MoE workspace comes later, outside).
    SGLang: free after loading, less (1 - fraction) of free before. TokenSpeed: free after
    loading, less (1 - fraction) of the total and the graphs. TensorRT-LLM: a fraction of the rest.
    """
    sizes: dict[str, int] = {}
    for line in fixed:
        sizes[line.key] = sizes.get(line.key, 0) + line.num_bytes
    taken = sum(sizes.values())
    loaded = sizes["weights_bytes"] + sizes.get("draft_bytes", 0)
    context = sizes.get("context_bytes", 0)
    before = capacity - context
    match engine.memory.rule:
        case MemoryRule.VLLM_BLOCKS:
            return int(capacity * fraction) - (taken - sizes.get("workspace_bytes", 0))
        case MemoryRule.SGLANG_POOLS:
            other = sizes.get("finetune_bytes", 0)
            return int(before - loaded - other - before * (1 - fraction))
        case MemoryRule.TOKENSPEED_ARENA:
            graphs = sizes.get("graphs_bytes", 0) + sizes.get("finetune_bytes", 0)
            return int(before - loaded - capacity * (1 - fraction)) - graphs
        case MemoryRule.TRTLLM_FRACTION:
            return int((capacity - taken) * fraction)
        case MemoryRule.EMBEDDED:
            return int(capacity * fraction) - taken
