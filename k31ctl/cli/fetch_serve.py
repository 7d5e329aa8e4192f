"""``k31ctl fetch --serve``: a folder given to the machines around."""

from pathlib import Path
from typing import Final

import typer

from k31ctl.errors import UsageError

_SERVES_ONLY: Final = ("host", "port", "clients")
_SERVES_TOO: Final = ("to", "repo", "serve", "limit_rate", "events", *_SERVES_ONLY)


def require_served_options(context: typer.Context, *, serve: bool) -> None:
    """Raise UsageError for an option that was given and would not be heard."""
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and (name not in _SERVES_TOO if serve else name in _SERVES_ONLY):
            raise UsageError(
                "this option is not for --serve" if serve else "this option is for --serve alone",
                where=option.opts[0],
                remedy="leave it out" if serve else "leave it out, or add --serve",
            )


def serve_folder(
    folder: Path,
    *,
    host: str,
    port: int,
    most_connections: int,
    rate_bytes_per_s: float | None,
    as_events: bool,
) -> None:
    """Serve until interrupted."""
    from k31ctl.fetch.peer_choice import peer_token
    from k31ctl.fetch.peer_server import PeerServer, ServeRequest
    from k31ctl.report.fetch_serve import show_serving

    request = ServeRequest(
        folder=folder,
        host=host,
        port=port,
        most_connections=most_connections,
        rate_bytes_per_s=rate_bytes_per_s,
        token=peer_token(),
    )
    show_serving(PeerServer(request), as_events=as_events)
