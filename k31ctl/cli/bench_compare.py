"""``k31ctl bench compare``: a saved measurement held against a plan."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl.cli.options import JsonOpt, gate_option

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
    gate: Annotated[list[str] | None, gate_option("against.tpot_s.ratio<=1.2")] = None,
    *,
    as_json: JsonOpt = False,
) -> None:
    """Hold a saved measurement against a plan: predicted, measured, ratio, what is likely off.

    k31ctl bench compare run --against plan.json --gate 'against.tpot_s.ratio<=1.2'
    """
    from k31ctl.api import runs
    from k31ctl.core.gates import parse_gate
    from k31ctl.report.against import show_against

    gates = [parse_gate(text) for text in gate or ()]
    held = runs.compare(run, against=against)
    show_against(
        held.against,
        held.notes,
        inputs={"run": str(run), "against": held.where},
        gates=gates,
        as_json=as_json,
    )
