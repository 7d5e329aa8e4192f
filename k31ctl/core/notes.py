"""What a plan assumed, and what a person should be warned of."""

from k31ctl.core.deployment import Deployment
from k31ctl.core.engine import MemoryRule, for_gpu
from k31ctl.core.figure import Assumption
from k31ctl.core.request import Parts, PlanRequest

# Publishers count padding, scales and containers in their own ways: K3's pads alone are 2,208.
SAME_PARAMS = 1e-6


def assumptions(parts: Parts, request: PlanRequest, built: Deployment) -> tuple[Assumption, ...]:
    """Everything the answer believes without knowing, the model's own assumptions first."""
    memory, gpu = parts.engine.memory, parts.node.gpu.architecture
    fraction = built.reserved.fraction
    found = [*parts.model.assumptions, *built.rows.assumptions]
    if request.kv_memory_bytes is None and not built.reserved.fraction_asked:
        found.append(
            Assumption(
                id="memory-fraction",
                text=f"{parts.engine.name} may use {fraction.value:g} of {_of_what(parts)}: "
                f"{fraction.why}",
                basis=fraction.basis,
                source=fraction.source,
            )
        )
    per_token = memory.activation_per_chunk_token
    found.append(
        Assumption(
            id="activations",
            text=f"prefill runs in chunks of {built.reserved.chunk_tokens:,} tokens: "
            f"{per_token.why}",
            basis=per_token.basis,
            source=per_token.source,
        )
    )
    tables = {
        "graphs": memory.graphs,
        "workspace": memory.moe_workspace,
        "communication": memory.communication,
        "vision": memory.vision_encoder,
        "context": memory.context,
    }
    shown = {line.assumption for stage in built.stages for line in stage.fixed}
    for key, table in tables.items():
        size = for_gpu(table, gpu)
        if key in shown:
            found.append(Assumption(id=key, text=size.why, basis=size.basis, source=size.source))
    return tuple(found)


def warnings(
    parts: Parts, request: PlanRequest, built: Deployment, *, longest: int, limit: int
) -> tuple[str, ...]:
    """What the answer does not say by itself: unused GPUs, branches, limits of length."""
    found = []
    layout, engine = built.layout, parts.engine
    if layout.world < layout.num_gpus:
        found.append(f"{layout.text} uses {layout.world} of {layout.num_gpus} GPUs")
    draft = parts.draft
    if draft is not None and parts.model.id not in draft.targets:
        found.append(
            f"{draft.name} was trained for {', '.join(draft.targets)}: whether it drafts well for "
            f"{parts.model.name} is not known"
        )
    if engine.development:
        found.append(f"{engine.name} is not a pinned release: its memory rules and flags may move")
    if 0 < longest < limit and request.max_model_len is None:
        found.append(
            f"one request of {limit:,} tokens does not fit the cache: start the engine with a "
            f"maximum length of {longest:,} or less"
        )
    if request.kv_memory_bytes is not None:
        room = min(s.capacity_bytes - s.fixed_bytes for s in built.stages)
        if request.kv_memory_bytes > room:
            found.append(
                "--kv-memory is more than is left on the tightest GPU beside weights and "
                "reservations: the engine would run out of memory"
            )
    found += [
        f"{need.text} ({need.source})"
        for need in engine.cache.needs
        if need.holds(
            built.rows.kv_format,
            gpu=parts.node.gpu.architecture,
            architecture=parts.model.architecture,
        )
    ]
    found += _published_differences(parts, built)
    return tuple(found)


def _published_differences(parts: Parts, built: Deployment) -> list[str]:
    """What the released checkpoint is said to hold and this inventory does not: none is exact."""
    published, counted = parts.model.published, built.inventory
    if published is None:
        return []
    totals = (
        (published.total_bytes, counted.total_bytes, "bytes", 0),
        (published.num_tensors, counted.num_tensors, "tensors", 0),
        (published.total_params, counted.total_params, "parameters", SAME_PARAMS),
    )
    off = [
        f"{said - own:+,} {what}"
        for said, own, what, tolerance in totals
        if said is not None and abs(said - own) > tolerance * own
    ]
    if not off:
        return []
    return [
        f"the published checkpoint differs from this inventory by {' and '.join(off)} "
        f"({published.source})"
    ]


def _of_what(parts: Parts) -> str:
    if parts.engine.memory.rule is MemoryRule.TRTLLM_FRACTION:
        return "what is left of each GPU after loading"
    return "each GPU"
