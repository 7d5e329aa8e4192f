"""Options of ``bench`` that say when requests are sent, and how many."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl import units
from k31ctl.cli.options import Counts, parse_counts, said

_LOAD = "Load"
_MOST = 1e9


class Rates(tuple[float, ...]):
    """A comma list of requests per second."""

    __slots__ = ()


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _MOST:
        raise ValueError(f"{text[:60]!r} is not a rate above 0; write 2,4,8 requests a second")
    return value


def _rates(text: str) -> Rates:
    return Rates(units.parse_list(text, _rate))


class Ramp(tuple[float, float]):
    """A first and a last rate."""

    __slots__ = ()


def _ramp(text: str) -> Ramp:
    first, colon, last = text.partition(":")
    if not colon:
        raise ValueError(f"{text[:60]!r} has no two rates; write 1:16 requests a second")
    return Ramp((_rate(first), _rate(last)))


ConcurrencyOpt = Annotated[
    Counts | None,
    typer.Option(
        "--concurrency",
        metavar="N,...",
        parser=said("--concurrency", parse_counts),
        help="Users who send their next request when the last has ended.",
        rich_help_panel=_LOAD,
    ),
]
RateOpt = Annotated[
    Rates | None,
    typer.Option(
        "--rate",
        metavar="R,...",
        parser=said("--rate", _rates),
        help="Requests a second, whatever the service does.",
        rich_help_panel=_LOAD,
    ),
]
RampOpt = Annotated[
    Ramp | None,
    typer.Option(
        "--ramp",
        metavar="FROM:TO",
        parser=said("--ramp", _ramp),
        help="Requests a second that go evenly from one rate to another.",
        rich_help_panel=_LOAD,
    ),
]
BurstinessOpt = Annotated[
    float,
    typer.Option(
        "--burstiness",
        metavar="SHAPE",
        min=0.01,
        max=1000.0,
        help="Gamma shape of the gaps of --rate, --ramp: 1 is Poisson, below are bursts.",
        rich_help_panel=_LOAD,
    ),
]
ConstantOpt = Annotated[
    bool,
    typer.Option("--constant", help="Even gaps for --rate and --ramp.", rich_help_panel=_LOAD),
]
TraceOpt = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Replay a trace: Mooncake, Azure, or arrival,prompt,output.",
        rich_help_panel=_LOAD,
    ),
]
SpeedOpt = Annotated[
    float,
    typer.Option(
        "--speed",
        metavar="X",
        min=0.001,
        help="Replay a trace so many times as fast.",
        rich_help_panel=_LOAD,
    ),
]
DurationOpt = Annotated[
    float | None,
    typer.Option(
        "--duration",
        metavar="SECONDS",
        min=0.1,
        help="How long new requests are sent; 30 unless --requests says how many.",
        rich_help_panel=_LOAD,
    ),
]
RequestsOpt = Annotated[
    int | None,
    typer.Option(
        "--requests", metavar="N", min=1, help="How many are sent.", rich_help_panel=_LOAD
    ),
]
RepeatOpt = Annotated[
    int,
    typer.Option(
        "--repeat",
        metavar="N",
        min=1,
        max=100,
        help="Run every load so many times, for confidence intervals.",
        rich_help_panel=_LOAD,
    ),
]
SaturateOpt = Annotated[
    bool,
    typer.Option(
        "--saturate",
        help="Go on with twice the users or rate until that gives no more, or breaks --slo.",
        rich_help_panel=_LOAD,
    ),
]
BudgetOpt = Annotated[
    float | None,
    typer.Option(
        "--time-budget",
        metavar="SECONDS",
        min=1.0,
        help="Begin no further stage after this time.",
        rich_help_panel=_LOAD,
    ),
]
WarmupOpt = Annotated[
    int,
    typer.Option(
        "--warmup",
        metavar="N",
        min=0,
        help="Requests ahead that are not counted.",
        rich_help_panel=_LOAD,
    ),
]
SloOpt = Annotated[
    str | None,
    typer.Option(
        "--slo",
        metavar="LIMITS",
        help="Count requests within ttft_p99_s<=5,tpot_p99_s<=0.05.",
        rich_help_panel=_LOAD,
    ),
]
