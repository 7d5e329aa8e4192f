"""The options that say what load a deployment serves."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl.cli.options import said, share

CachedFractionOpt = Annotated[
    float,
    typer.Option(
        "--cached-fraction",
        metavar="SHARE",
        parser=said("--cached-fraction", share),
        help="Share of a prompt found in the prefix cache.",
        rich_help_panel="Load",
    ),
]
ConcurrencyOpt = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        min=1,
        max=1_000_000,
        help="Requests always in the system.",
        rich_help_panel="Load",
    ),
]
AcceptedTokensOpt = Annotated[
    float | None,
    typer.Option(
        "--accepted-tokens",
        help="Tokens that a step with a draft yields on average.",
        rich_help_panel="Load",
    ),
]
CalibrationOpt = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="Speed parameters over ours, such as calibrate writes.",
        rich_help_panel="Output",
    ),
]
RateOpt = Annotated[
    float | None,
    typer.Option(
        "--rate",
        help="Requests that arrive in a second, at random; simulated.",
        rich_help_panel="Load",
    ),
]
TraceOpt = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Play a CSV or JSONL of arrival, prompt, output, cached.",
        rich_help_panel="Load",
    ),
]
SloOpt = Annotated[
    str | None,
    typer.Option(
        "--slo",
        metavar="LIMITS",
        help="Service levels, such as ttft_p99_s<=5,tpot_p99_s<=0.05.",
        rich_help_panel="Load",
    ),
]
SimulateOpt = Annotated[
    bool,
    typer.Option(
        "--simulate", help="Play the load out instead of the closed form.", rich_help_panel="Load"
    ),
]
SeedOpt = Annotated[
    int,
    typer.Option(
        "--seed",
        min=0,
        help="Of the random arrivals; the same gives the same.",
        rich_help_panel="Load",
    ),
]
BreakdownOpt = Annotated[
    bool,
    typer.Option(
        "--breakdown",
        help="Show every part of a step, and its physical limit.",
        rich_help_panel="Output",
    ),
]
