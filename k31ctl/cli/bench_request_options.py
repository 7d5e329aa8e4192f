"""Options of ``bench`` that say what a request holds."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from k31ctl.cli.options import said
from k31ctl.errors import UsageError

_WHAT = "Requests"
_MOST_PIXELS = 16_384


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


ModelOpt = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="The model to ask for; else the first that is listed.",
        rich_help_panel=_WHAT,
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
