"""``k31ctl plan --search``: from the options to an answer."""

from pathlib import Path

from k31ctl.catalog.engines import load_draft
from k31ctl.catalog.prices import load_price_book
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.store import Store
from k31ctl.cli.search_options import known_systems, names_in, search_space
from k31ctl.core.fleet import parse_fleet
from k31ctl.core.gates import Gate
from k31ctl.core.goal import Goal
from k31ctl.core.kv_cache import StateDtype
from k31ctl.core.model import Model
from k31ctl.core.request import PlanRequest
from k31ctl.core.search import NO_SLO
from k31ctl.core.searched import searched
from k31ctl.core.slo import parse_slo
from k31ctl.report.search import show_search

EVERY = "all"


def search_and_show(
    store: Store,
    model: Model,
    base: PlanRequest,
    *,
    on: str,
    engine: str,
    draft: str | None,
    systems: str | None,
    engines: str | None,
    max_nodes: int,
    goal: Goal,
    slo: str | None,
    fleet: str | None,
    concurrencies: tuple[int, ...],
    state_dtype: StateDtype,
    calibration: Path | None,
    provider: str | None,
    gates: tuple[Gate, ...],
    as_json: bool,
    csv: Path | None,
    html: Path | None,
    command: str,
) -> None:
    """Search the space that the options span, and show what was found."""
    names = (
        known_systems(store)
        if systems == EVERY
        else names_in(systems, default=on, where="--systems")
    )
    prices = load_price_book(store, about=(*names, model.id, provider or model.id))
    space = search_space(
        store,
        model=model,
        systems=names,
        engines=names_in(engines, default=engine, where="--engines"),
        draft=load_draft(store, draft) if draft else None,
        max_nodes=max_nodes,
        base=base,
        state_dtypes=(state_dtype,),
        concurrencies=concurrencies,
        speed=load_speed(store, calibration),
        prices=prices,
    )
    found = searched(
        space,
        goal=goal,
        slo=parse_slo(slo) if slo else NO_SLO,
        fleet_load=parse_fleet(fleet) if fleet else None,
    )
    show_search(found, prices, gates=gates, as_json=as_json, csv=csv, html=html, command=command)
