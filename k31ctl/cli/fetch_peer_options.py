"""Options of ``fetch`` for many machines: peers as sources, and being one."""

from typing import Annotated

import typer

_PEERS = "Many machines"

FromPeerOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--from-peer",
        metavar="DIR_OR_URL",
        help="Copy from here first, proving every byte; several in order.",
        rich_help_panel=_PEERS,
    ),
]
OfflineOpt = Annotated[
    bool,
    typer.Option(
        "--offline",
        help="Do not ask the hub: a peer's record is all there is to prove against.",
        rich_help_panel=_PEERS,
    ),
]
ServeOpt = Annotated[
    bool,
    typer.Option(
        "--serve",
        help="Give what is proven in --to to other machines, read only.",
        rich_help_panel=_PEERS,
    ),
]
HostOpt = Annotated[
    str,
    typer.Option(
        "--host", metavar="ADDRESS", help="Where --serve listens.", rich_help_panel=_PEERS
    ),
]
PortOpt = Annotated[
    int,
    typer.Option("--port", min=0, max=65535, help="Where --serve listens.", rich_help_panel=_PEERS),
]
ClientsOpt = Annotated[
    int,
    typer.Option(
        "--clients",
        min=1,
        max=4096,
        help="Most connections to --serve at once.",
        rich_help_panel=_PEERS,
    ),
]
