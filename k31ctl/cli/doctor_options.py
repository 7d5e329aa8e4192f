"""Options of ``doctor``."""

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from k31ctl.errors import UsageError

_LOOK, _CHOOSE = "What to look at", "Which checks"
_PEER: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^:\[\]\s]+)):(\d{1,5})")
_MOST_PORT: Final = 65535
_MOST_PEERS: Final = 1024

ModelOpt = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="A model profile, a config.json or a checkpoint folder.",
        rich_help_panel="Deployment",
    ),
]
OnOpt = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="HARDWARE",
        help="What this machine should be, such as 8x-b300.",
        rich_help_panel="Deployment",
    ),
]
WeightsOpt = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        metavar="DIR",
        help="Where the weights are or shall be; its read speed is measured.",
        rich_help_panel=_LOOK,
    ),
]
PythonOpt = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="FILE",
        help="The interpreter that the engine is installed in.",
        rich_help_panel=_LOOK,
    ),
]
PeersOpt = Annotated[
    str | None,
    typer.Option(
        "--peers",
        metavar="HOST:PORT,...",
        help="Other nodes to connect to.",
        rich_help_panel=_LOOK,
    ),
]
RootOpt = Annotated[
    Path,
    typer.Option(
        "--root",
        metavar="DIR",
        help="The machine's root folder, such as /host in a container.",
        rich_help_panel=_LOOK,
    ),
]
OnlyOpt = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="ID", help="Only this check.", rich_help_panel=_CHOOSE),
]
SkipOpt = Annotated[
    list[str] | None,
    typer.Option("--skip", metavar="ID", help="Not this check.", rich_help_panel=_CHOOSE),
]
TimeoutOpt = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        max=600,
        help="Most that any tool may take.",
        rich_help_panel=_CHOOSE,
    ),
]


def peer_addresses(text: str | None) -> tuple[tuple[str, int], ...]:
    """Names and ports of ``HOST:PORT,[ADDRESS]:PORT``; raises UsageError for anything else."""
    entries = [entry.strip() for entry in text.split(",")] if text is not None else []
    found = []
    for entry in entries[: _MOST_PEERS + 1]:
        parts = _PEER.fullmatch(entry)
        if parts is None or not 0 < int(parts[3]) <= _MOST_PORT or len(entries) > _MOST_PEERS:
            raise UsageError(
                f"{entry[:60]!r} is not a host and a port"
                if len(entries) <= _MOST_PEERS
                else f"{len(entries)} machines are too many",
                where="--peers",
                remedy="write node1:22,node2:22 or [2001:db8::1]:22; any port answers, ssh's too",
            )
        found.append((parts[1] or parts[2], int(parts[3])))
    return tuple(found)
