"""Options of ``bench``."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from k31ctl import units
from k31ctl.cli.options import Counts, parse_counts, said
from k31ctl.errors import UsageError

_LOAD, _WHAT, _HOW, _OUT = "Load", "Requests", "How", "Output"
_MOST = 1e9
_MOST_PIXELS = 16_384


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


class Size(tuple[int, int]):
    """Width and height in pixels."""

    __slots__ = ()


def _size(text: str) -> Size:
    width, x, height = text.lower().partition("x")
    if not (x and width.isascii() and width.isdigit() and height.isascii() and height.isdigit()):
        raise ValueError(f"{text[:40]!r} is not a size; write 1024x768")
    if not all(1 <= int(side[:6]) <= _MOST_PIXELS for side in (width, height)):
        raise ValueError(f"{text[:40]!r} is not from 1x1 to {_MOST_PIXELS}x{_MOST_PIXELS}")
    return Size((int(width), int(height)))


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


def parse_extra(texts: list[str]) -> dict[str, Any]:
    """Read ``NAME=JSON`` pairs for the body; what is no JSON is taken as text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(
                f"{text[:60]!r} has no name and value",
                where="--body",
                remedy="write --body temperature=0.6",
            )
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


UrlArg = Annotated[
    str, typer.Argument(metavar="URL", help="An OpenAI-compatible endpoint, with or without /v1.")
]
ModelOpt = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="The model to ask for; else the first that is listed.",
        rich_help_panel=_WHAT,
    ),
]
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
SpreadOpt = Annotated[
    float,
    typer.Option(
        "--spread",
        metavar="FRACTION",
        min=0.0,
        max=1.0,
        help="Vary lengths evenly by up to this fraction.",
        rich_help_panel=_WHAT,
    ),
]
SharedOpt = Annotated[
    float,
    typer.Option(
        "--shared-prefix",
        metavar="FRACTION",
        min=0.0,
        max=1.0,
        help="How much of each prompt is the same in all.",
        rich_help_panel=_WHAT,
    ),
]
DatasetOpt = Annotated[
    Path | None,
    typer.Option(
        "--dataset",
        metavar="FILE",
        help="JSON lines with messages or prompt, and output_tokens where known.",
        rich_help_panel=_WHAT,
    ),
]
TurnsOpt = Annotated[
    int,
    typer.Option(
        "--turns",
        metavar="N",
        min=1,
        help="Turns of a session, whose context grows with each.",
        rich_help_panel=_WHAT,
    ),
]
ThinkOpt = Annotated[
    float,
    typer.Option(
        "--think",
        metavar="SECONDS",
        min=0.0,
        help="Pause between two turns.",
        rich_help_panel=_WHAT,
    ),
]
ImagesOpt = Annotated[
    int,
    typer.Option(
        "--images",
        metavar="N",
        min=0,
        max=64,
        help="Images with every prompt.",
        rich_help_panel=_WHAT,
    ),
]
ImageSizeOpt = Annotated[
    Size | None,
    typer.Option(
        "--image-size",
        metavar="WxH",
        parser=said("--image-size", _size),
        help="Their pixels; 1024x1024 if not given.",
        rich_help_panel=_WHAT,
    ),
]
CompletionsOpt = Annotated[
    bool,
    typer.Option("--completions", help="Ask /completions instead of chat.", rich_help_panel=_WHAT),
]
IgnoreEosOpt = Annotated[
    bool,
    typer.Option(
        "--ignore-eos/--no-ignore-eos",
        help="Have the engine go on to the full length of output.",
        rich_help_panel=_WHAT,
    ),
]
EffortOpt = Annotated[
    str | None,
    typer.Option(
        "--reasoning-effort",
        metavar="EFFORT",
        help="Such as low, high or max.",
        rich_help_panel=_WHAT,
    ),
]
BodyOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--body",
        metavar="NAME=JSON",
        help="A further field of every request, such as temperature=0.6.",
        rich_help_panel=_WHAT,
    ),
]
SeedOpt = Annotated[
    int, typer.Option("--seed", help="Of prompts, lengths and arrivals.", rich_help_panel=_WHAT)
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
