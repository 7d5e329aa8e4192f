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
    from datetime import UTC, datetime

    from k31ctl import __version__
    from k31ctl.bench.observed import read_run
    from k31ctl.catalog.speed import load_speed
    from k31ctl.catalog.store import Store, default_folders
    from k31ctl.cli.bench_compare import plan_at, plan_of
    from k31ctl.core.calibrate import SiteRun
    from k31ctl.core.calibrate import calibrate as fitted
    from k31ctl.report.calibration import show_calibration

    given = None if plan is None else plan_at(plan, calibrated=False)
    measured = [read_run(run) for run in runs]
    planned = [
        given or plan_of(run.plan, where=run.where, calibrated=False, option="--plan")
        for run in measured
    ]
    found = fitted(
        [
            SiteRun(
                run=run.where,
                command=run.command,
                server=run.version,
                deployed=each.deployed,
                stages=run.stages,
            )
            for run, each in zip(measured, planned, strict=True)
        ],
        load_speed(Store(default_folders())),
        version=__version__,
        today=datetime.now(UTC).date(),
    )
    notes = tuple(dict.fromkeys(note for each in planned for note in each.notes))
    show_calibration(
        found,
        notes,
        inputs={"runs": runs, "plan": plan, "out": out},
        out=out,
        as_json=as_json,
    )
