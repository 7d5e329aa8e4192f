"""Options of ``fetch``."""

from typing import Annotated

import typer

from k31ctl import units
from k31ctl.errors import UsageError

_WHAT, _HOW = "What", "How"


def parse_rate(text: str) -> float:
    """Read a rate in bytes per second, such as ``125MB/s``."""
    try:
        found = units.parse(text, "B/s")
    except ValueError as error:
        what, _, _ = str(error).partition("; ")
        raise UsageError(what, where="a rate", remedy="write 125MB/s") from None
    if found <= 0:
        raise UsageError("a rate of nothing moves nothing", where=text, remedy="write 125MB/s")
    return found


RepoArg = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL_OR_REPO",
        help="A model profile, or OWNER/NAME on the hub.",
        show_default=False,
    ),
]
ToOpt = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="DIR",
        help="The folder for the files, or s3://BUCKET/PREFIX.",
        show_default=False,
    ),
]
RevisionOpt = Annotated[
    str,
    typer.Option("--revision", metavar="REV", help="Branch, tag or commit.", rich_help_panel=_WHAT),
]
IncludeOpt = Annotated[
    list[str] | None,
    typer.Option("--include", metavar="GLOB", help="Only files that match.", rich_help_panel=_WHAT),
]
ExcludeOpt = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="GLOB", help="No files that match.", rich_help_panel=_WHAT),
]
EndpointOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="A hub or mirror; several in order of preference.",
        envvar="HF_ENDPOINT",
        show_envvar=False,
        show_default=False,
        rich_help_panel=_HOW,
    ),
]
DryRunOpt = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")
]
ConnectionsOpt = Annotated[
    int,
    typer.Option("--connections", min=1, max=64, help="Most at a time.", rich_help_panel=_HOW),
]
LimitRateOpt = Annotated[
    float | None,
    typer.Option(
        "--limit-rate",
        metavar="RATE",
        parser=parse_rate,
        help="Such as 125MB/s.",
        rich_help_panel=_HOW,
    ),
]
BetweenOpt = Annotated[
    str | None,
    typer.Option(
        "--between",
        metavar="HOURS",
        help="Such as 22:00-06:00.",
        rich_help_panel=_HOW,
    ),
]
StallOpt = Annotated[
    float,
    typer.Option(
        "--stall",
        metavar="SECONDS",
        min=0.1,
        help="Silence after which to ask again.",
        rich_help_panel=_HOW,
    ),
]
RetriesOpt = Annotated[
    int,
    typer.Option(
        "--retries", min=0, help="Failures in a row before giving up.", rich_help_panel=_HOW
    ),
]
WaitOpt = Annotated[
    bool,
    typer.Option(
        "--wait/--no-wait",
        help="Wait for another process that has the folder.",
        rich_help_panel=_HOW,
    ),
]
SyncOpt = Annotated[
    bool,
    typer.Option(
        "--sync/--no-sync",
        help="Have the disk confirm each file before it counts.",
        rich_help_panel=_HOW,
    ),
]
AcceptedByOpt = Annotated[
    str | None,
    typer.Option(
        "--accepted-by",
        metavar="NAME",
        help="Who accepted the licence, for the record.",
        rich_help_panel=_WHAT,
    ),
]
EventsOpt = Annotated[
    bool,
    typer.Option(
        "--events", help="One JSON line per event on standard output.", rich_help_panel="Output"
    ),
]
