"""``k31ctl validate``: what the speed model says of published measurements."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl.cli.options import JsonOpt, MarkdownOpt, ProfilesOpt
from k31ctl.cli.workload_options import CalibrationOpt

TableArg = Annotated[
    str,
    typer.Argument(metavar="[TABLE]", help="A table under profiles/measurements, or a file."),
]
CrossOpt = Annotated[
    bool,
    typer.Option(
        "--cross/--no-cross",
        help="Predict each source by a fit that has not seen it; takes a minute.",
    ),
]
FitOpt = Annotated[
    Path | None,
    typer.Option("--fit", metavar="FILE", help="Fit the parameters to all tables, and write them."),
]


def validate(
    table: TableArg = "kimi-k3",
    *,
    cross: CrossOpt = False,
    fit: FitOpt = None,
    calibration: CalibrationOpt = None,
    as_json: JsonOpt = False,
    markdown: MarkdownOpt = None,
    profiles: ProfilesOpt = None,
) -> None:
    """Hold the speed model against published measurements; exit 4 where it misses its targets.

    Every measured figure is shown with what the model says, low and high, and the
    ratio. With --cross, each source is predicted by a model fitted without it.

    k31ctl validate --cross --markdown docs/validation.md

    k31ctl validate --fit my-speed.yaml
    """
    from k31ctl.api import runs
    from k31ctl.report.validation import show_validation, write_parameters

    found = runs.validate(
        table,
        cross=cross,
        fit=fit is not None,
        calibration=calibration,
        profiles=profiles or (),
    )
    if fit is not None:
        write_parameters(fit, found.speed)
    show_validation(
        found.validation, found.skipped, table=table, as_json=as_json, markdown=markdown
    )
