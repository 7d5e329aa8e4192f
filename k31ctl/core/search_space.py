"""What a search walks: hardware, engines and layouts, and the deployments made of them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from k31ctl.core.deployment import Deployment, deployment, longest_context
from k31ctl.core.draft import Draft
from k31ctl.core.engine import DataParallel, Engine, ExpertParallel
from k31ctl.core.hardware import Node
from k31ctl.core.kv_cache import KvFormat, StateDtype
from k31ctl.core.layout import Layout
from k31ctl.core.layout_rules import (
    AskedLayout,
    broken_rule,
    check_draft,
    check_support,
)
from k31ctl.core.layout_rules import Case as LayoutCase
from k31ctl.core.model import Model
from k31ctl.core.pools import Pool
from k31ctl.core.prediction import Case, case_of, replica_of
from k31ctl.core.rates import Rates
from k31ctl.core.request import Parts, PlanRequest
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.core.speed_plan import drafting
from k31ctl.core.step import StepModel
from k31ctl.core.tallies import tallies
from k31ctl.core.workload import Workload
from k31ctl.errors import RefusedError
from k31ctl.values import frozen

NO_RATE = "speed-no-matmul-rate"


@frozen
class System:
    """One kind of node, how many of it may be taken, and what a GPU-hour costs where known."""

    node: Node
    node_counts: tuple[int, ...]
    usd_per_gpu_hour: float | None


@frozen
class SearchSpace:
    """All that is walked, and what every deployment of it shares.

    ``base`` holds what is not walked; sizes that its layout names are held fixed, and its ``nodes``
    is not looked at. ``workloads`` are the lengths to plan for, whatever their concurrency. None
    among dtypes and chunk sizes stands for the engine's own default.
    """

    model: Model
    systems: tuple[System, ...]
    engines: tuple[Engine, ...]
    drafts: tuple[Draft | None, ...]
    kv_dtypes: tuple[KvFormat | None, ...]
    state_dtypes: tuple[StateDtype, ...]
    chunk_tokens: tuple[int | None, ...]
    concurrencies: tuple[int, ...]
    workloads: tuple[Workload, ...]
    base: PlanRequest
    speed: SpeedParameters
    utilisation: float


@frozen
class Option:
    """One deployment that loads: what stays the same whatever the load.

    A layout on fewer GPUs than a node has stands for as many copies as fill the node, so that the
    GPUs counted and paid for are those of the layout. ``longest_context`` is of one request, in
    tokens, up to what the model takes; ``num_gpus`` those of one replica; ``place`` is hardware,
    engine and layout: what makes two deployments different ones.
    """

    parts: Parts
    request: PlanRequest
    layout: Layout
    kv_format: KvFormat
    state_dtype: StateDtype
    chunk_tokens: int
    pool: Pool
    case: Case
    step: StepModel
    longest_context: int
    num_gpus: int
    place: tuple[str, str, Layout]
    usd_per_gpu_hour: float | None
    utilisation: float

    @property
    def usd_per_hour(self) -> float | None:
        """Cost of one replica for an hour."""
        price = self.usd_per_gpu_hour
        return None if price is None else price * self.num_gpus

    @property
    def text(self) -> str:
        """Layout and hardware, such as ``TP16 on 2 x 8x-h200``."""
        nodes = f"{self.layout.nodes} x " if self.layout.nodes > 1 else ""
        return f"{self.layout.text} on {nodes}{self.parts.node.id}"


@dataclass(slots=True)
class Dropped:
    """Counts of what a search left out.

    Deployments by the rule that refused them, and those whose weights do not load; loads with fewer
    requests than attention groups, and loads that a cache does not hold.
    """

    by_rule: Counter[str]
    too_large: int = 0
    idle: int = 0
    full: int = 0


def options(space: SearchSpace, dropped: Dropped) -> Iterator[Option]:
    """Every deployment of the space that its engine takes and that loads, in a fixed order."""
    for system, engine, draft in product(space.systems, space.engines, space.drafts):
        try:
            check_support(model=space.model, engine=engine, node=system.node)
            if draft is not None:
                check_draft(draft, engine)
        except RefusedError as refused:
            dropped.by_rule[refused.rule] += 1
            continue
        if "bf16" not in system.node.gpu.matmul:
            dropped.by_rule[NO_RATE] += 1
            continue
        parts = Parts(
            model=space.model,
            node=system.node,
            engine=engine,
            draft=draft,
            speed=space.speed,
            prices=None,
        )
        for count in system.node_counts:
            yield from _on_nodes(space, system, parts, count, dropped)


def _on_nodes(
    space: SearchSpace, system: System, parts: Parts, nodes: int, dropped: Dropped
) -> Iterator[Option]:
    drafted = parts.draft is not None or bool(space.base.draft_tokens)
    variants = tuple(product(space.kv_dtypes, space.state_dtypes, space.chunk_tokens))
    if parts.model.linear is None:
        variants = tuple(product(space.kv_dtypes, space.state_dtypes[:1], space.chunk_tokens))
    # Rates depend on how many GPUs work together, and on none of what varies within that.
    known: dict[tuple[int, ...], Rates] = {}
    loaded = tallies(parts.model).loaded_bytes
    for layout in layouts(parts.engine, parts.node, nodes=nodes, asked=space.base.layout):
        broken = broken_rule(
            LayoutCase(model=parts.model, engine=parts.engine, layout=layout, has_draft=drafted)
        )
        if broken is not None:
            dropped.by_rule[broken[0]] += 1
        elif loaded > layout.world * parts.node.gpu.memory_bytes:
            # Ranks together hold all weights: no need to look at each.
            dropped.too_large += len(variants)
        else:
            asked = AskedLayout(
                nodes=nodes,
                tp=layout.tp,
                pp=layout.pp,
                dp=layout.dp,
                ep=layout.ep,
                dcp=layout.dcp,
            )
            yield from _variants(space, system, parts, asked, variants, known, dropped)


def _variants(
    space: SearchSpace,
    system: System,
    parts: Parts,
    asked: AskedLayout,
    variants: tuple[tuple[KvFormat | None, StateDtype, int | None], ...],
    known: dict[tuple[int, ...], Rates],
    dropped: Dropped,
) -> Iterator[Option]:
    limit = space.base.max_model_len or parts.model.max_position_embeddings
    for kv_dtype, state_dtype, chunk_tokens in variants:
        request = replace(
            space.base,
            layout=asked,
            kv_dtype=kv_dtype,
            state_dtype=state_dtype,
            chunk_tokens=chunk_tokens,
        )
        try:
            built = deployment(parts, request)
        except RefusedError as refused:
            dropped.by_rule[refused.rule] += 1
            continue
        if not _loads(built, request):
            dropped.too_large += 1
            continue
        depth, kept = drafting(parts, request, built)
        case = case_of(parts, built, draft_tokens=depth, tokens_per_step=kept)
        layout = built.layout
        shape = (layout.world, layout.pp, layout.attention_tp, layout.expert_world)
        if shape not in known:
            known[shape] = case.step(space.speed).rates
        yield Option(
            parts=parts,
            request=request,
            layout=layout,
            kv_format=built.rows.kv_format,
            state_dtype=state_dtype,
            chunk_tokens=built.reserved.chunk_tokens,
            pool=built.pool,
            case=case,
            step=StepModel(case.counted, known[shape], replica_of(layout)),
            longest_context=longest_context(built.pool, limit),
            num_gpus=layout.world,
            place=(parts.node.id, parts.engine.id, layout),
            usd_per_gpu_hour=system.usd_per_gpu_hour,
            utilisation=space.utilisation,
        )


def _loads(built: Deployment, request: PlanRequest) -> bool:
    if request.max_model_len is not None and not built.pool.max_requests(request.max_model_len):
        return False
    return built.loads


def layouts(engine: Engine, node: Node, *, nodes: int, asked: AskedLayout) -> Iterator[Layout]:
    """Layouts that use all GPUs of several nodes, or a part of one node that divides it.

    Sizes that were asked for are kept; rules decide later which of them are legal.
    """
    rules = engine.layout
    worlds = [nodes * node.num_gpus] if nodes > 1 else _divisors(node.num_gpus)
    grouped = rules.data_parallel is DataParallel.GROUPS
    for world in worlds:
        for tp, pp in product(_divisors(world), repeat=2):
            inner, odd = divmod(world, tp * pp)
            if odd or (inner > 1 and not grouped):
                continue
            for dp in (inner,) if grouped else _divisors(tp):
                sized = Layout(
                    nodes=nodes,
                    gpus_per_node=node.num_gpus,
                    tp=tp,
                    pp=pp,
                    dp=dp,
                    ep=1,
                    dcp=1,
                    data_parallel=rules.data_parallel,
                    stage_split=rules.stage_split,
                )
                for ep, dcp in product(_expert_sizes(sized, engine), _divisors(sized.attention_tp)):
                    if _as_asked(asked, tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp):
                        yield replace(sized, ep=ep, dcp=dcp)


def _as_asked(asked: AskedLayout, **sizes: int) -> bool:
    return all(getattr(asked, name) in (None, size) for name, size in sizes.items())


def _expert_sizes(layout: Layout, engine: Engine) -> tuple[int, ...]:
    if engine.layout.expert_parallel is ExpertParallel.DIVIDES_TENSOR:
        return _divisors(layout.tp)
    return tuple(sorted({1, layout.expert_world}))


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, number + 1) if number % d == 0)
