"""``k31ctl calibrate``: the speed model fitted to this site's own benchmarks."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl.cli.options import JsonOpt

RunsArg = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...", help="Records of bench --out or answers of bench --json, several loads."
    ),
]
PlanOpt = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        metavar="PLAN.json",
        help="The deployment that was measured, for records that keep no plan.",
    ),
]
OutOpt = Annotated[
    Path,
    typer.Option("--out", metavar="FILE", help="Where the calibration goes."),
]


def calibrate(
    runs: RunsArg,
    *,
    plan: PlanOpt = None,
    out: OutOpt = Path("calibration.yaml"),
    as_json: JsonOpt = False,
) -> None:
    """Fit the speed model to measurements; exit 4 where they cannot tell its parameters.

    Measure closed loops of several sizes and lengths of the deployment of a plan.
    What public runs taught is where the fit begins; far figures count little. A
    refusal says which load would tell what is missing.

    k31ctl bench URL --concurrency 1,8,64 --against plan.json --out run

    k31ctl calibrate run --out site.yaml

    k31ctl plan --calibration site.yaml
    """
    from k31ctl.api import runs as saved
    from k31ctl.report.calibration import show_calibration

    found = saved.calibrate(runs, plan=plan)
    show_calibration(
        found.calibrated,
        found.notes,
        inputs={"runs": runs, "plan": plan, "out": out},
        out=out,
        as_json=as_json,
    )
