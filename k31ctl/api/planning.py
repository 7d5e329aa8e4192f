"""Plans, and what is answered beside them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from k31ctl.api.bounds import MOST_LINK_BYTES_PER_S, MOST_NODES
from k31ctl.api.further import DEFAULT_STORAGE, further_answers
from k31ctl.api.given import (
    Folders,
    checked_range,
    checked_ratio,
    chosen,
    path_of,
    several,
    store_of,
)
from k31ctl.api.hardware import node_named
from k31ctl.api.plan_request import PlanOptions, plan_request
from k31ctl.catalog.engines import load_draft, resolve_engine
from k31ctl.catalog.models import load_model
from k31ctl.catalog.prices import load_price_book
from k31ctl.catalog.speed import load_speed
from k31ctl.core import plan as core
from k31ctl.core.asked_pools import asked_pools
from k31ctl.core.goal import Goal

if TYPE_CHECKING:
    from k31ctl.core.cold_start import ColdStart
    from k31ctl.core.disaggregation import Disaggregation
    from k31ctl.core.price_choice import PriceBook
    from k31ctl.core.searched import Searched


def plan(
    model: str | Path = "kimi-k3.1-pro",
    *,
    on: str = "8x-b300",
    engine: str = "vllm",
    draft: str | None = None,
    calibration: str | Path | None = None,
    profiles: Folders = (),
    **options: Unpack[PlanOptions],
) -> core.Plan:
    """Return what a model needs on these GPUs: memory, cache, speed and cost, with assumptions.

    That it does not fit is an answer: ``fits`` is false. Options are those of ``PlanOptions``.
    Raises UsageError for options that cannot be, ProfileError and InputError for a profile or a
    file that cannot be used, and RefusedError where the engine would refuse the deployment.

    >>> plan("kimi-k3", on="8x-b300", context=[131072], batch=[1, 8]).fits
    True
    """
    request = plan_request(**options)
    store = store_of(profiles)
    loaded = load_model(store, str(model))
    node = node_named(store, on)
    provider = options.get("provider")
    parts = core.Parts(
        model=loaded,
        node=node,
        engine=resolve_engine(store, engine, loaded),
        draft=load_draft(store, draft) if draft is not None else None,
        speed=load_speed(store, path_of(calibration)),
        prices=load_price_book(
            store, about=(node.id, loaded.id, *([provider] if provider else ()))
        ),
    )
    return core.plan(parts, request)


def search(
    model: str | Path = "kimi-k3.1-pro",
    *,
    on: str = "8x-b300",
    engine: str = "vllm",
    systems: str | Sequence[str] | None = None,
    engines: str | Sequence[str] | None = None,
    max_nodes: int = 4,
    goal: str = Goal.THROUGHPUT,
    fleet: str | None = None,
    draft: str | None = None,
    calibration: str | Path | None = None,
    profiles: Folders = (),
    **options: Unpack[PlanOptions],
) -> "Searched":
    """Return the best layouts, engines and hardware for a load, with the reason for each.

    ``systems`` are hardware profiles or ``all``, ``on`` where none is named; ``engines`` likewise.
    ``batch`` holds the numbers of requests to try, ``slo`` the service levels to keep. Raises what
    ``plan`` raises, and RefusedError where nothing fits or nothing keeps the service levels.

    >>> found = search("kimi-k3", systems=["8x-b300", "8x-b200"], max_nodes=2, batch=[8])
    >>> found.loads[0].of(found.goal).chosen.option.parts.node.id
    '8x-b300'
    """
    found, _ = search_with_prices(
        str(model),
        on=on,
        engine=engine,
        systems=systems,
        engines=engines,
        max_nodes=max_nodes,
        goal=goal,
        fleet=fleet,
        draft=draft,
        calibration=calibration,
        profiles=profiles,
        **options,
    )
    return found


def search_with_prices(
    model: str,
    *,
    on: str,
    engine: str,
    systems: str | Sequence[str] | None,
    engines: str | Sequence[str] | None,
    max_nodes: int,
    goal: str,
    fleet: str | None,
    draft: str | None,
    calibration: str | Path | None,
    profiles: Folders,
    **options: Unpack[PlanOptions],
) -> "tuple[Searched, PriceBook | None]":
    """Return a search, and the prices that its candidates' own plans are made with."""
    from k31ctl.api.search_space import ALL, known_systems, names_in, search_space
    from k31ctl.core.fleet import parse_fleet
    from k31ctl.core.search import NO_SLO
    from k31ctl.core.searched import searched
    from k31ctl.core.slo import parse_slo

    checked_range("--max-nodes", max_nodes, least=1, most=MOST_NODES)
    request = plan_request(plays=False, **options)
    store = store_of(profiles)
    loaded = load_model(store, model)
    asked_systems, asked_engines = _comma_list(systems), _comma_list(engines)
    names = (
        known_systems(store)
        if asked_systems == ALL
        else names_in(asked_systems, default=on, where="--systems")
    )
    batch, concurrency = options.get("batch"), options.get("concurrency")
    slo, provider = options.get("slo"), options.get("provider")
    prices = load_price_book(store, about=(*names, loaded.id, provider or loaded.id))
    space = search_space(
        store,
        model=loaded,
        systems=names,
        engines=names_in(asked_engines, default=engine, where="--engines"),
        draft=load_draft(store, draft) if draft is not None else None,
        max_nodes=max_nodes,
        base=request,
        state_dtypes=(request.state_dtype,),
        concurrencies=several(batch) or several(concurrency),
        speed=load_speed(store, path_of(calibration)),
        prices=prices,
    )
    found = searched(
        space,
        goal=chosen(Goal, goal, where="--goal"),
        slo=parse_slo(slo) if slo else NO_SLO,
        fleet_load=parse_fleet(fleet) if fleet else None,
    )
    return found, prices


def _comma_list(names: str | Sequence[str] | None) -> str | None:
    return names if names is None or isinstance(names, str) else ",".join(names)


def cold_start(
    of: core.Plan,
    *,
    storage: str = DEFAULT_STORAGE,
    loader: str | None = None,
    link_rate: float | None = None,
    warm_caches: bool = False,
    profiles: Folders = (),
) -> "ColdStart":
    """Return the time from an empty disk to the first token of a plan's deployment, in parts.

    ``storage`` is a profile, ``link_rate`` a node's download rate in bytes per second. Raises
    UsageError where the plan has no speed to start from, ProfileError for an unknown name.

    >>> cold_start(plan("kimi-k3"), link_rate=1.25e9).storage.id
    'local-nvme'
    """
    checked_ratio("--link-rate", link_rate, most=MOST_LINK_BYTES_PER_S)
    found = further_answers(
        store_of(profiles),
        of,
        cold_start=True,
        link_rate=link_rate,
        storage=storage,
        loader=loader,
        warm_caches=warm_caches,
        disaggregate=None,
    )
    assert found is not None
    assert found.cold_start is not None
    return found.cold_start


def disaggregate(of: core.Plan, pools: str = "auto") -> "Disaggregation":
    """Return what a plan's deployment gains by pools of their own for prefill and decode.

    ``pools`` is ``auto`` or such as ``prefill=1xTP8,decode=2xTP8xDCP8``. Raises UsageError for
    other text, and where the plan has no speed.

    >>> two = disaggregate(plan("kimi-k3", nodes=2, prompt_tokens=8192, output_tokens=512))
    >>> two.ratio > 0
    True
    """
    from k31ctl.core.further import further

    found = further(of, start=None, pools=asked_pools(pools))
    assert found.pools is not None
    return found.pools
