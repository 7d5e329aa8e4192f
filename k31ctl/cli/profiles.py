"""``k31ctl profiles``: what there is to plan with, and whether it is sound."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl.cli.options import JsonOpt, ProfilesOpt

KindArg = Annotated[
    str | None,
    typer.Argument(
        metavar="[KIND]",
        help="models, hardware, engines, drafts, prices, speed, storage, startup, measurements, "
        "licences, flags or recipes.",
    ),
]
NameArg = Annotated[str, typer.Argument(metavar="NAME", help="A profile, as KIND/ID or as ID.")]
PathsArg = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[PATHS]...", exists=True, help="Files or folders, instead of all."),
]
EngineArg = Annotated[str, typer.Argument(metavar="ENGINE", help="vllm, sglang or tokenspeed.")]
PythonOpt = Annotated[
    str, typer.Option("--python", metavar="PATH", help="The interpreter that has the engine.")
]
ToOpt = Annotated[
    Path | None,
    typer.Option("--to", metavar="DIR", help="A folder of profiles to write the file into."),
]

app = typer.Typer(no_args_is_help=True, help="List, show, check and extract profiles.")


@app.command(name="list")
def list_all(
    kind: KindArg = None, profiles: ProfilesOpt = None, *, as_json: JsonOpt = False
) -> None:
    """List what is known, of every kind or of one."""
    from k31ctl.catalog import Store, default_folders
    from k31ctl.catalog.listing import list_profiles
    from k31ctl.report import profiles as report

    found = list_profiles(Store(default_folders(profiles or ())), kind)
    report.show_list(found, kind=kind, as_json=as_json)


@app.command()
def show(name: NameArg, profiles: ProfilesOpt = None, *, as_json: JsonOpt = False) -> None:
    """Show one profile and the path of its file."""
    from k31ctl.catalog import Store, default_folders
    from k31ctl.catalog.listing import find_profile
    from k31ctl.report import profiles as report

    found = find_profile(Store(default_folders(profiles or ())), name)
    report.show_profile(found, as_json=as_json)


@app.command()
def check(
    paths: PathsArg = None, profiles: ProfilesOpt = None, *, as_json: JsonOpt = False
) -> None:
    """Say which profiles are sound, and the first bad key of each that is not."""
    from k31ctl.catalog import default_folders
    from k31ctl.catalog.check import check_profiles
    from k31ctl.report import profiles as report

    found = check_profiles(default_folders(profiles or ()), paths or ())
    report.show_check(found, paths=tuple(paths or ()), as_json=as_json)
    raise typer.Exit(found.exit_code)


@app.command()
def extract(
    engine: EngineArg, python: PythonOpt = "", to: ToOpt = None, *, as_json: JsonOpt = False
) -> None:
    """Ask an installed engine for its flags, as a profile."""
    from datetime import date

    from k31ctl.host.engine_flags import extract_flags
    from k31ctl.report import profiles as report

    found = extract_flags(engine, python=python, checked=date.today().isoformat())
    report.show_extracted(found, folder=to, as_json=as_json)
