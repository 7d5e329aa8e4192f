"""The space that a search walks."""

from collections.abc import Sequence
from typing import Final

from k31ctl.api.hardware import node_named
from k31ctl.catalog.engines import resolve_engine
from k31ctl.catalog.store import Kind, Store
from k31ctl.core.costing import usd_per_gpu_hour
from k31ctl.core.draft import Draft
from k31ctl.core.kv_cache import KvFormat, StateDtype
from k31ctl.core.model import Model
from k31ctl.core.price_choice import PriceBook
from k31ctl.core.request import PlanRequest
from k31ctl.core.search_space import SearchSpace, System
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.core.workload import resolved_workload
from k31ctl.errors import UsageError

CONCURRENCIES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
KV_DTYPES: Final = (KvFormat.BF16, KvFormat.FP8)
ALL: Final = "all"
MOST_SYSTEMS: Final = 32
# Every count up to this, beyond it the powers of two.
FEW_NODES: Final = 4


def node_counts(max_nodes: int) -> tuple[int, ...]:
    """One to four nodes, then powers of two, and the most itself.

    >>> node_counts(10)
    (1, 2, 3, 4, 8, 10)
    """
    few = set(range(1, min(max_nodes, FEW_NODES) + 1))
    powers = {1 << n for n in range(max_nodes.bit_length()) if 1 << n <= max_nodes}
    return tuple(sorted(few | powers | {max_nodes}))


def names_in(text: str | None, *, default: str, where: str) -> tuple[str, ...]:
    """Names of a comma list, each once; raises UsageError for an empty or a very long one."""
    names = tuple(dict.fromkeys(name.strip() for name in (text or default).split(",")))
    if not all(names) or len(names) > MOST_SYSTEMS:
        raise UsageError(
            f"{(text or '')[:40]!r} is not a list of 1 to {MOST_SYSTEMS} names",
            where=where,
            remedy=f"write {where} with commas between names, such as {default}",
        )
    return names


def search_space(
    store: Store,
    *,
    model: Model,
    systems: Sequence[str],
    engines: Sequence[str],
    draft: Draft | None,
    max_nodes: int,
    base: PlanRequest,
    state_dtypes: tuple[StateDtype, ...],
    concurrencies: tuple[int, ...],
    speed: SpeedParameters,
    prices: PriceBook | None,
) -> SearchSpace:
    """The space of a search; ``systems`` are names, or ``all`` alone.

    Cache types are bf16 and fp8 unless ``base`` names one. A draft is searched with and without.
    """
    names = known_systems(store) if tuple(systems) == (ALL,) else systems
    nodes = [node_named(store, name) for name in names]
    return SearchSpace(
        model=model,
        systems=tuple(
            System(
                node=node,
                node_counts=node_counts(max_nodes),
                usd_per_gpu_hour=usd_per_gpu_hour(prices, base.cost, node=node, num_nodes=1),
            )
            for node in nodes
        ),
        engines=tuple(resolve_engine(store, name, model) for name in engines),
        drafts=(None, draft) if draft else (None,),
        kv_dtypes=(base.kv_dtype,) if base.kv_dtype else KV_DTYPES,
        state_dtypes=state_dtypes,
        chunk_tokens=(base.chunk_tokens,),
        concurrencies=concurrencies or CONCURRENCIES,
        workloads=tuple(
            resolved_workload(base.workload, context_tokens=context, full_load=1)
            for context in base.contexts
        ),
        base=base,
        speed=speed,
        utilisation=_utilisation(base, prices),
    )


def _utilisation(base: PlanRequest, prices: PriceBook | None) -> float:
    if base.cost.utilisation is not None:
        return base.cost.utilisation
    return prices.serving.utilisation if prices else 1.0


def known_systems(store: Store) -> tuple[str, ...]:
    """Every hardware profile."""
    return tuple(store.ids(Kind.HARDWARE))
