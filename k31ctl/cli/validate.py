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
    from k31ctl.catalog import Store, default_folders
    from k31ctl.catalog.measurements import load_trials, other_tables
    from k31ctl.catalog.speed import load_speed
    from k31ctl.core.fit import fitted
    from k31ctl.core.validation import validation
    from k31ctl.report.validation import show_validation, write_parameters

    store = Store(default_folders(profiles or ()))
    speed = load_speed(store, calibration)
    trials, skipped = load_trials(store, table, speed)
    others = [t for name in other_tables(store, table) for t in load_trials(store, name, speed)[0]]
    if fit is not None:
        speed = fitted(speed, [t for t in (*trials, *others) if not t.measurement.left_out])
        write_parameters(fit, speed)
    found = validation(trials, others, speed, cross=cross)
    show_validation(found, skipped, table=table, as_json=as_json, markdown=markdown)
