"""From bytes left on each pipeline stage to the engine's own cache: which pool, how many blocks."""

from bisect import bisect_left
from collections.abc import Sequence

from k31ctl.core.cache_plan import CacheRows
from k31ctl.core.draft import Draft
from k31ctl.core.engine import Engine, MemoryRule
from k31ctl.core.layout import Layout, stage_bounds
from k31ctl.core.model import Model
from k31ctl.core.pools import BlockPool, Pool, SharedPool, SplitPool
from k31ctl.core.tallies import tallies
from k31ctl.values import frozen

BLOCK_ALIGN_TOKENS = 128
PURE_LATENT_BLOCK_TOKENS = 64
GROUP_WASTE_LIMIT = 1.5

_BLOCK_LOGS = {
    MemoryRule.VLLM_BLOCKS: "GPU KV cache size: {tokens:,} tokens",
    MemoryRule.TOKENSPEED_ARENA: "arena of {blocks:,} parents, {tokens:,} tokens",
}


@frozen
class StageCache:
    """What one token and one request cost on a rank of one stage, in bytes."""

    stage: int
    num_full_layers: int
    num_linear_layers: int
    latent_bytes_per_token: float
    indexer_bytes_per_token: float
    draft_bytes_per_token: float
    state_bytes_per_sequence: int

    @property
    def bytes_per_token(self) -> float:
        """All that one more token adds, with decode-context parallelism divided out."""
        return (
            self.latent_bytes_per_token + self.indexer_bytes_per_token + self.draft_bytes_per_token
        )


def stage_caches(
    model: Model, *, engine: Engine, layout: Layout, rows: CacheRows, draft: Draft | None
) -> tuple[StageCache, ...]:
    """Cache costs of each stage; tensor parallelism divides states and never latents."""
    index_ways = layout.dcp if engine.layout.index_keys_divided_by_dcp else 1
    counted = tallies(model)
    found = []
    for stage, (first, end) in enumerate(stage_bounds(model.num_layers, layout)):
        full = counted.full_before[end] - counted.full_before[first]
        linear = counted.linear_before[end] - counted.linear_before[first]
        last = stage == layout.pp - 1
        found.append(
            StageCache(
                stage=stage,
                num_full_layers=full,
                num_linear_layers=linear,
                latent_bytes_per_token=full * rows.latent_bytes / layout.dcp,
                indexer_bytes_per_token=full * rows.index_bytes / index_ways,
                draft_bytes_per_token=(
                    draft.kv_bytes_per_token(layout.attention_tp)
                    + draft.latent_layers * rows.row_bytes / layout.dcp
                    if draft and last
                    else 0.0
                ),
                state_bytes_per_sequence=linear * rows.state_bytes,
            )
        )
    return tuple(found)


def pool_for(
    model: Model,
    *,
    engine: Engine,
    layout: Layout,
    rows: CacheRows,
    caches: Sequence[StageCache],
    pool_bytes: Sequence[int],
    draft: Draft | None,
    state_pool_bytes: Sequence[int],
    slots: int,
    ratio: float,
) -> Pool:
    """The engine's cache, given the bytes that each stage leaves it; the tightest stage decides."""
    match engine.memory.rule:
        case MemoryRule.VLLM_BLOCKS | MemoryRule.TOKENSPEED_ARENA:
            extra = rows.draft_tokens if engine.memory.rule is MemoryRule.VLLM_BLOCKS else 0
            return _block_pool(
                model, engine, layout, rows, pool_bytes, slots=slots + extra, draft=draft
            )
        case MemoryRule.SGLANG_POOLS:
            return _ratio_pool(
                engine,
                layout,
                rows,
                caches,
                pool_bytes,
                slots=slots,
                ratio=ratio,
            )
        case MemoryRule.TRTLLM_FRACTION:
            return _fraction_pool(engine, layout, caches, pool_bytes, state_pool_bytes, slots=slots)
        case MemoryRule.EMBEDDED:
            return _shared_pool(engine, caches, pool_bytes)


def _groups(num_full: int, num_linear: int) -> tuple[int, int]:
    """Groups of full and of linear layers that share one block size.

    Source: vLLM 0.33.0 v1/core/kv_cache_planning.py: the group is as large as the rarer kind, or
    as the commoner one where that is less than half as many again.
    """
    counts = [n for n in (num_full, num_linear) if n]
    size = max(counts) if max(counts) < GROUP_WASTE_LIMIT * min(counts) else min(counts)
    return -(-num_full // size), -(-num_linear // size)


def _layers_of_group(layers: Sequence[int], groups: int, first: int, end: int) -> int:
    """Most of sorted layers that a group has on a stage; group i takes every groups-th from i."""
    each = (layers[i::groups] for i in range(groups))
    return max((bisect_left(some, end) - bisect_left(some, first) for some in each), default=0)


def _block_pool(
    model: Model,
    engine: Engine,
    layout: Layout,
    rows: CacheRows,
    pool_bytes: Sequence[int],
    *,
    slots: int,
    draft: Draft | None,
) -> BlockPool:
    full, linear = list(tallies(model).full), tallies(model).linear
    if draft is not None and draft.latent_layers:
        full += [model.num_layers - 1] * draft.latent_layers
    block_tokens = PURE_LATENT_BLOCK_TOKENS
    if linear:
        step = BLOCK_ALIGN_TOKENS * rows.row_bytes
        block_tokens = BLOCK_ALIGN_TOKENS * -(-rows.state_bytes // step)
    full_groups, linear_groups = _groups(len(full), len(linear))
    page = block_tokens * rows.row_bytes
    block_bytes, num_blocks = [], []
    for (first, end), pool in zip(stage_bounds(model.num_layers, layout), pool_bytes, strict=True):
        pages = max(
            _layers_of_group(full, full_groups, first, end),
            _layers_of_group(linear, linear_groups, first, end) if linear_groups else 0,
        )
        extra = 0
        if draft is not None and not draft.latent_layers and end == model.num_layers:
            extra = int(block_tokens * draft.kv_bytes_per_token(layout.attention_tp))
        block_bytes.append(max(1, pages * page + extra))
        num_blocks.append(max(0, pool) // block_bytes[-1])
    tightest = min(range(len(num_blocks)), key=num_blocks.__getitem__)
    return BlockPool(
        rule=engine.memory.rule.value,
        pool_bytes=max(0, pool_bytes[tightest]),
        num_blocks=num_blocks[tightest],
        block_tokens=block_tokens,
        bytes_per_block=block_bytes[tightest],
        dcp=layout.dcp,
        full_groups=full_groups,
        linear_groups=linear_groups,
        slots=slots,
        log_form=_BLOCK_LOGS[engine.memory.rule],
    )


def _ratio_pool(
    engine: Engine,
    layout: Layout,
    rows: CacheRows,
    caches: Sequence[StageCache],
    pool_bytes: Sequence[int],
    *,
    slots: int,
    ratio: float,
) -> SplitPool:
    """SGLang's split: states get r/(1+r) of the pool, one slot of them is padding."""
    grown = 1 + rows.draft_tokens / max(1, slots)
    latents, num_slots = [], []
    for cache, pool in zip(caches, pool_bytes, strict=True):
        state_share = 0
        if cache.state_bytes_per_sequence:
            state_share = int(max(0, pool) * ratio / (1 + ratio))
            per_slot = int(cache.state_bytes_per_sequence * grown)
            num_slots.append(max(0, state_share // per_slot - 1))
        latents.append(max(0, pool) - state_share)
    return _split_pool(engine, layout, caches, pool_bytes, latents, num_slots, slots=slots)


def _fraction_pool(
    engine: Engine,
    layout: Layout,
    caches: Sequence[StageCache],
    pool_bytes: Sequence[int],
    state_pool_bytes: Sequence[int],
    *,
    slots: int,
) -> SplitPool:
    """TensorRT-LLM: the fraction holds latents; states come out of what is left beside it."""
    num_slots = [
        max(0, rest) // cache.state_bytes_per_sequence
        for cache, rest in zip(caches, state_pool_bytes, strict=True)
        if cache.state_bytes_per_sequence
    ]
    return _split_pool(engine, layout, caches, pool_bytes, pool_bytes, num_slots, slots=slots)


def _split_pool(
    engine: Engine,
    layout: Layout,
    caches: Sequence[StageCache],
    pool_bytes: Sequence[int],
    latent_bytes: Sequence[int],
    num_slots: Sequence[int],
    *,
    slots: int,
) -> SplitPool:
    """Whole pages of tokens and slots on the stage that has the fewest of each."""
    page = engine.memory.page_tokens * layout.dcp
    tokens = [
        int(max(0, room) / cache.bytes_per_token) // page * page
        for cache, room in zip(caches, latent_bytes, strict=True)
        if cache.bytes_per_token
    ]
    return SplitPool(
        rule=engine.memory.rule.value,
        pool_bytes=max(0, min(pool_bytes)),
        num_tokens=min(tokens),
        num_slots=min(num_slots, default=0),
        slots_per_request=slots if num_slots else 0,
        page_tokens=page,
        bytes_per_page=int(page * max(c.bytes_per_token for c in caches)),
    )


def _shared_pool(
    engine: Engine, caches: Sequence[StageCache], pool_bytes: Sequence[int]
) -> SharedPool:
    page = engine.memory.page_tokens
    pools = [
        SharedPool(
            rule=engine.memory.rule.value,
            pool_bytes=max(0, pool),
            page_tokens=page,
            bytes_per_page=int(page * cache.bytes_per_token),
            state_bytes=cache.state_bytes_per_sequence,
        )
        for cache, pool in zip(caches, pool_bytes, strict=True)
        if cache.num_full_layers or cache.num_linear_layers
    ]
    return min(pools, key=lambda pool: pool.pool_bytes / pool.request_bytes(BLOCK_ALIGN_TOKENS))
