"""The options about starting from an empty disk, and the link that their text describes."""

import re
from typing import Annotated

import typer

from k31ctl import units
from k31ctl.api.bounds import MOST_LINK_BYTES_PER_S
from k31ctl.errors import UsageError

_BITS_PER_S = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([kMGT])(?:bps|bit/s|b/s)")
_PREFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def link_rate(text: str) -> float:
    """Bytes per second of ``10Gbps``, ``10 Gb/s`` or ``125 MB/s``; raises UsageError for others."""
    found = _BITS_PER_S.fullmatch(text.strip()) if len(text) <= 64 else None  # noqa: PLR2004
    try:
        rate = float(found[1]) * _PREFIXES[found[2]] / 8 if found else units.parse(text, "B/s")
    except ValueError as error:
        raise _bad_rate(str(error).partition("; ")[0]) from None
    if not 1 <= rate <= MOST_LINK_BYTES_PER_S:
        raise _bad_rate(f"{text[:40]!r} is not a rate between 1 B/s and 10 TB/s")
    return rate


def _bad_rate(what: str) -> UsageError:
    return UsageError(
        what, where="--link-rate", remedy="write bits as 10Gbps and bytes as 125 MB/s"
    )


ColdStartOpt = Annotated[
    bool,
    typer.Option(
        "--cold-start",
        help="Show the time from an empty disk to the first token.",
        rich_help_panel="Starting, and two pools",
    ),
]
LinkRateOpt = Annotated[
    float | None,
    typer.Option(
        "--link-rate",
        metavar="RATE",
        parser=link_rate,
        help="Download rate of a node: 10Gbps or 125 MB/s.",
        rich_help_panel="Starting, and two pools",
    ),
]
StorageOpt = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="NAME",
        help="Where weights lie; a profile of storage.",
        rich_help_panel="Starting, and two pools",
    ),
]
LoaderOpt = Annotated[
    str | None,
    typer.Option(
        "--loader",
        metavar="NAME",
        help="What reads them, such as instanttensor.",
        rich_help_panel="Starting, and two pools",
    ),
]
WarmCachesOpt = Annotated[
    bool,
    typer.Option(
        "--warm-caches/--cold-caches",
        help="Compiled kernels are kept, or are not.",
        rich_help_panel="Starting, and two pools",
    ),
]
