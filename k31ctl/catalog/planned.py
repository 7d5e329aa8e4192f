"""The deployment of a plan's document, made again from what the plan was asked for."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from k31ctl.catalog.decode import decode
from k31ctl.catalog.engines import load_draft, resolve_engine
from k31ctl.catalog.models import load_model
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.store import Store, default_folders
from k31ctl.core.asked_deployment import AskedDeployment
from k31ctl.core.deployed import Deployed, deployed
from k31ctl.core.hardware import Node
from k31ctl.core.request import Parts
from k31ctl.core.workload import Workload
from k31ctl.errors import InputError, ProfileError
from k31ctl.values import frozen

# A plan read again with the profiles it was made with gives its own figures, to rounding.
_SAME: Final = 1e-3


@frozen
class Planned:
    """A plan's deployment; ``notes`` say where it is no longer the one that the plan spoke of."""

    deployed: Deployed
    document: Mapping[str, Any]
    where: str
    notes: tuple[str, ...]


def kept_plan(document: object, *, where: str, option: str) -> Mapping[str, Any]:
    """Return the plan that a record keeps; raises InputError where it keeps none."""
    if not isinstance(document, dict):
        raise InputError(
            "the record keeps no plan: it was not measured with --against",
            where=where,
            remedy=f"name the plan of the deployment that was measured: {option} PLAN.json",
        )
    return document


def planned(
    document: Mapping[str, Any],
    *,
    where: str,
    node_named: Callable[[Store, str], Node],
    is_calibrated: bool,
) -> Planned:
    """Make the deployment of a plan again; raises InputError where it does not say how.

    Without its calibration, where it has one, it is as our own parameters have it.
    Raises InputError also where a model, a profile or a file that it names is gone.
    """
    try:
        raw, result = document["inputs"]["deployment"], document["result"]
    except (KeyError, TypeError):
        raise _no_plan(where) from None
    asked = decode(AskedDeployment, raw, where=f"{where}, inputs.deployment")
    if not is_calibrated and asked.calibration is not None:
        asked, result = replace(asked, calibration=None), {"performance": None}
    try:
        parts = _parts(asked, node_named)
    except (InputError, ProfileError) as gone:
        raise InputError(
            gone.what,
            where=f"{gone.where}, in {where}",
            remedy=f"{gone.remedy}; paths in a plan count from the folder where it was made",
        ) from None
    found = deployed(parts, asked)
    try:
        notes = _changed(found, result)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise _no_plan(where) from None
    return Planned(deployed=found, document=document, where=where, notes=notes)


def _parts(asked: AskedDeployment, node_named: Callable[[Store, str], Node]) -> Parts:
    store = Store(default_folders([Path(folder) for folder in asked.profiles]))
    model = load_model(store, asked.model)
    return Parts(
        model=model,
        node=node_named(store, asked.hardware),
        engine=resolve_engine(store, asked.engine, model),
        draft=load_draft(store, asked.draft) if asked.draft else None,
        speed=load_speed(store, Path(asked.calibration) if asked.calibration else None),
        prices=None,
    )


def _changed(found: Deployed, result: Mapping[str, Any]) -> tuple[str, ...]:
    """Say where the plan's own load gives another decode step than the plan states."""
    stated = result["performance"]
    if stated is None or result.get("simulation") is not None:
        return ()
    load = decode(Workload, stated["workload"], where="performance.workload")
    was, now = stated["itl_s"], found.performance(load).itl_s.value
    if abs(now / was - 1) <= _SAME:
        return ()
    return (
        f"the plan says {was:.4g} s for a decode step under its own load, and made again now "
        f"{now:.4g} s: profiles or files changed since; what is predicted here is as of now",
    )


def _no_plan(where: str) -> InputError:
    return InputError(
        "not the document of a plan of one deployment",
        where=where,
        remedy="write one with k31ctl plan ... --json",
    )
