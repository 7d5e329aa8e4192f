"""``k31ctl bench compare``: a saved measurement held against a plan; and what bench shares."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer

from k31ctl.cli.options import GateOpt, JsonOpt

if TYPE_CHECKING:
    from k31ctl.bench.result import StageResult
    from k31ctl.catalog.planned import Planned
    from k31ctl.core.against import Against

RunArg = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="A record's folder, its run.json, or what bench --json said."
    ),
]
PlanOpt = Annotated[
    Path | None,
    typer.Option(
        "--against",
        metavar="PLAN.json",
        help="Written by plan --json; else the one that the record keeps.",
    ),
]


def compare(
    run: RunArg,
    against: PlanOpt = None,
    gate: GateOpt = None,
    *,
    as_json: JsonOpt = False,
) -> None:
    """Hold a saved measurement against a plan: predicted, measured, ratio, what is likely off.

    k31ctl bench compare run --against plan.json --gate 'against.tpot_s.ratio<=1.2'
    """
    from k31ctl.bench.observed import read_run
    from k31ctl.core.against import against as held_against
    from k31ctl.core.gates import parse_gate
    from k31ctl.report.against import show_against

    gates = [parse_gate(text) for text in gate or ()]
    measured = read_run(run)
    plan = plan_of(measured.plan, where=measured.where) if against is None else plan_at(against)
    found = held_against(plan.deployed, measured.stages, random=Random(0), seed=0)
    show_against(
        found,
        plan.notes,
        inputs={"run": str(run), "against": plan.where},
        gates=gates,
        as_json=as_json,
    )


def plan_at(path: Path, *, calibrated: bool = True) -> "Planned":
    """The deployment of a plan's file, with its calibration or without."""
    from k31ctl.catalog.plan_document import read_plan
    from k31ctl.catalog.planned import planned
    from k31ctl.cli.hardware import node_named

    return planned(
        read_plan(path), where=str(path), node_named=node_named, is_calibrated=calibrated
    )


def plan_of(
    document: object, *, where: str, calibrated: bool = True, option: str = "--against"
) -> "Planned":
    """The deployment of the plan that a record keeps.

    Raises InputError where it keeps none, which ``option`` makes good.
    """
    from k31ctl.catalog.planned import kept_plan, planned
    from k31ctl.cli.hardware import node_named

    return planned(
        kept_plan(document, where=where, option=option),
        where=f"the plan in {where}",
        node_named=node_named,
        is_calibrated=calibrated,
    )


def hold_stages(plan: "Planned", stages: "Sequence[StageResult]", seed: int) -> "Against":
    """Hold stages that were just measured against a plan."""
    from k31ctl.bench.observed import observed_stage
    from k31ctl.core.against import against

    seen = [observed_stage(stage, run="this run") for stage in stages]
    return against(plan.deployed, seen, random=Random(seed), seed=seed)
