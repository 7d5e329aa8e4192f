"""Options of ``bench`` for the endpoint, the client, and what a measurement is held against."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl.cli.options import said

_HOW, _OUT = "How", "Output"


def parse_share(text: str) -> float:
    """Read ``5%`` or ``0.05`` as a share."""
    percent = text.endswith("%")
    try:
        value = float(text.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"{text[:40]!r} is not a share from 0 to 1; write 5% or 0.05")
    return value


UrlArg = Annotated[
    str, typer.Argument(metavar="URL", help="An OpenAI-compatible endpoint, with or without /v1.")
]
TimeoutOpt = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        help="The most that one request may take.",
        rich_help_panel=_HOW,
    ),
]
GapTimeoutOpt = Annotated[
    float,
    typer.Option(
        "--gap-timeout",
        metavar="SECONDS",
        min=0.1,
        help="The longest silence inside an answer.",
        rich_help_panel=_HOW,
    ),
]
InFlightOpt = Annotated[
    int,
    typer.Option(
        "--most-in-flight",
        metavar="N",
        min=1,
        max=60_000,
        help="Requests under way at once; more wait, and it is told.",
        rich_help_panel=_HOW,
    ),
]
KeyOpt = Annotated[
    str,
    typer.Option(
        "--api-key-env",
        metavar="VARIABLE",
        help="Where the key for the endpoint is.",
        rich_help_panel=_HOW,
    ),
]
Http2Opt = Annotated[
    bool,
    typer.Option(
        "--http2",
        help="Speak HTTP/2, agreed on under TLS and taken for granted without; needs package h2.",
        rich_help_panel=_HOW,
    ),
]
OutOpt = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="An empty folder for the record of every request.",
        rich_help_panel=_OUT,
    ),
]
BaselineOpt = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        metavar="RUN",
        help="Hold the run against this record, or file of --json.",
        rich_help_panel=_OUT,
    ),
]
MaxRegressionOpt = Annotated[
    float | None,
    typer.Option(
        "--max-regression",
        metavar="PERCENT",
        parser=said("--max-regression", parse_share),
        help="Exit 4 where a figure is worse by more, beyond noise.",
        rich_help_panel=_OUT,
    ),
]
AgainstOpt = Annotated[
    Path | None,
    typer.Option(
        "--against",
        metavar="PLAN.json",
        help="Hold every stage against this plan, written by plan --json.",
        rich_help_panel=_OUT,
    ),
]
