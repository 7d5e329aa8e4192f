"""A deployment before and after any context length is asked about: stages, pool, cells."""

from collections.abc import Callable
from functools import partial

from k31ctl.core.cache_plan import CacheRows, cache_rows
from k31ctl.core.capacity import StageCache, pool_for, stage_caches
from k31ctl.core.figure import Basis, Line
from k31ctl.core.finetune import finetune
from k31ctl.core.inventory import Inventory, inventory
from k31ctl.core.layout import Layout
from k31ctl.core.layout_rules import Case, check_draft, check_support, checked, resolved
from k31ctl.core.memory import (
    Reservation,
    StageMemory,
    reservation,
    reserved_lines,
    stage_memory,
)
from k31ctl.core.offload import resident_expert_bytes
from k31ctl.core.pools import Pool
from k31ctl.core.request import Parts, PlanRequest
from k31ctl.core.weights import StageWeights, stage_weights
from k31ctl.values import frozen

ROOM_FOR_BLOCKS = 1.1


@frozen
class Deployment:
    """A deployment before any context length is asked about.

    ``loads`` is whether weights and pool go onto every GPU at all.
    """

    layout: Layout
    inventory: Inventory
    weights: tuple[StageWeights, ...]
    reserved: Reservation
    rows: CacheRows
    caches: tuple[StageCache, ...]
    stages: tuple[StageMemory, ...]
    pool: Pool
    loads: bool
    resident: int | None


@frozen
class Cell:
    """One context length at one number of requests, on the tightest GPU.

    ``kv_cache_bytes`` and ``state_bytes`` are what the requests' own tokens and states take;
    engines round up to blocks, which ``fits`` and ``max_requests`` respect.
    """

    context_tokens: int
    batch: int
    fits: bool
    max_requests: int
    stage: int
    kv_cache_bytes: int
    state_bytes: int
    free_bytes: int


def deployment(parts: Parts, request: PlanRequest) -> Deployment:
    """The stages and the pool of what was asked; raises RefusedError where the engine refuses."""
    model, node, engine = parts.model, parts.node, parts.engine
    gpu = node.gpu.architecture
    check_support(model=model, engine=engine, node=node)
    if parts.draft is not None:
        check_draft(parts.draft, engine)
    layout = checked(
        Case(
            model=model,
            engine=engine,
            layout=resolved(request.layout, model=model, engine=engine, node=node),
            has_draft=parts.draft is not None or bool(request.draft_tokens),
        )
    )
    drafts = request.draft_tokens
    if drafts is None:
        drafts = parts.draft.draft_tokens if parts.draft else 0
    if request.replay_ssm:
        drafts = 0
    rows = cache_rows(
        model,
        engine=engine,
        layout=layout,
        gpu=gpu,
        kv_dtype=request.kv_dtype,
        index_dtype=request.index_dtype,
        state_dtype=request.state_dtype,
        draft_tokens=drafts,
    )
    counted = inventory(model)
    weights = stage_weights(model, engine=engine, layout=layout, gpu=gpu)
    reserved = reservation(
        model,
        engine=engine,
        node=node,
        layout=layout,
        chunk_tokens=request.chunk_tokens,
        memory_fraction=request.memory_fraction,
        text_only=request.text_only,
    )
    caches = stage_caches(model, engine=engine, layout=layout, rows=rows, draft=parts.draft)
    staged = partial(
        _stages, parts, request, layout=layout, weights=weights, reserved=reserved, counted=counted
    )
    stages = staged(resident=None)
    resident = None
    if request.offload is not None and model.experts is not None:
        resident = request.resident_experts
        if resident is None:
            resident = _most_resident(parts, request, caches, staged)
        resident = min(resident, model.experts.num_experts)
        stages = staged(resident=resident)
    return Deployment(
        layout=layout,
        inventory=counted,
        weights=weights,
        reserved=reserved,
        rows=rows,
        caches=caches,
        stages=stages,
        pool=_pool(parts, request, layout, rows, caches, stages),
        loads=all(_loads(stage, request.kv_memory_bytes) for stage in stages),
        resident=resident,
    )


def _stages(
    parts: Parts,
    request: PlanRequest,
    *,
    layout: Layout,
    weights: tuple[StageWeights, ...],
    reserved: Reservation,
    counted: Inventory,
    resident: int | None,
) -> tuple[StageMemory, ...]:
    experts = parts.model.experts
    extra: tuple[Line, ...] = ()
    if request.lora_rank:
        tuned = finetune(parts.model, rank=request.lora_rank, pp=layout.pp)
        extra = (
            Line(
                key="finetune_bytes",
                label=f"LoRA rank {request.lora_rank}",
                num_bytes=tuned.per_gpu_bytes,
                bases=(Basis.DERIVED,),
                source="adapters, gradients and Adam states; without kept activations",
            ),
        )
    lines = [
        reserved_lines(parts.model, parts.engine, parts.node, reserved, first=first)
        for first in (True, False)[: layout.pp]
    ]
    return tuple(
        stage_memory(
            stage,
            engine=parts.engine,
            node=parts.node,
            layout=layout,
            reserved=reserved,
            reserved_lines=lines[min(stage.stage, 1)],
            weight_bases=counted.bases,
            resident_expert_bytes=(
                None
                if resident is None or experts is None
                else resident_expert_bytes(
                    stage, resident=resident, num_experts=experts.num_experts
                )
            ),
            draft=parts.draft,
            extra=extra,
        )
        for stage in weights
    )


def _pool(
    parts: Parts,
    request: PlanRequest,
    layout: Layout,
    rows: CacheRows,
    caches: tuple[StageCache, ...],
    stages: tuple[StageMemory, ...],
) -> Pool:
    asked = request.kv_memory_bytes
    return pool_for(
        parts.model,
        engine=parts.engine,
        layout=layout,
        rows=rows,
        caches=caches,
        pool_bytes=[s.pool_bytes if asked is None else asked for s in stages],
        draft=parts.draft,
        state_pool_bytes=[s.beside_pool_bytes for s in stages],
        slots=_slots(parts, request),
        ratio=_ratio(parts, request),
    )


def _loads(stage: StageMemory, kv_memory_bytes: int | None) -> bool:
    """Whether a stage holds its weights and a pool; a given pool overrides the reservations."""
    if kv_memory_bytes is None:
        return stage.pool_bytes > 0
    return stage.line_bytes("weights_bytes") + kv_memory_bytes <= stage.capacity_bytes


def _slots(parts: Parts, request: PlanRequest) -> int:
    """States kept for one request: what was asked, else the engine's with or without prefixes."""
    if parts.model.linear is None:
        return 0
    if request.state_slots is not None:
        return request.state_slots
    return parts.engine.cache.state_slots["prefix" if request.prefix_caching else "no_prefix"]


def _ratio(parts: Parts, request: PlanRequest) -> float:
    """State memory over KV memory, in engines that split their pool."""
    if request.state_ratio is not None:
        return request.state_ratio
    known = parts.engine.memory.state_ratio
    return known.value if known is not None else 0.0


def _most_resident(
    parts: Parts,
    request: PlanRequest,
    caches: tuple[StageCache, ...],
    staged: Callable[..., tuple[StageMemory, ...]],
) -> int:
    """Most experts per layer that leave room for the first cell asked for, by bisection."""
    assert parts.model.experts is not None
    need = [
        request.batches[0] * (c.bytes_per_token * request.contexts[0] + c.state_bytes_per_sequence)
        for c in caches
    ]
    low, high = 0, parts.model.experts.num_experts
    while low < high:
        middle = (low + high + 1) // 2
        pools = [s.pool_bytes for s in staged(resident=middle)]
        if all(pool >= ROOM_FOR_BLOCKS * asked for pool, asked in zip(pools, need, strict=True)):
            low = middle
        else:
            high = middle - 1
    return low


def longest_context(pool: Pool, limit: int, requests: int = 1) -> int:
    """Longest context up to a limit that so many requests may have at once; 0 where none."""
    if pool.max_requests(limit) >= requests:
        return limit
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if pool.max_requests(middle) >= requests:
            low = middle
        else:
            high = middle - 1
    return low


def cell_of(parts: Parts, built: Deployment, context: int, batch: int) -> Cell:
    """Memory of the tightest stage for one cell, and whether the engine's pool holds it."""
    per_instance = -(-batch // built.layout.dp)
    most = built.pool.max_requests(context)
    found = []
    for cache, stage in zip(built.caches, built.stages, strict=True):
        kv_bytes = round(per_instance * context * cache.bytes_per_token)
        state = per_instance * cache.state_bytes_per_sequence
        found.append(
            Cell(
                context_tokens=context,
                batch=batch,
                fits=built.loads and most >= per_instance,
                max_requests=most * built.layout.dp,
                stage=stage.stage,
                kv_cache_bytes=kv_bytes,
                state_bytes=state,
                free_bytes=stage.capacity_bytes - stage.fixed_bytes - kv_bytes - state,
            )
        )
    return min(found, key=lambda cell: cell.free_bytes)
