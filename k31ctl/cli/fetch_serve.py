"""``k31ctl fetch --serve``: a folder given to the machines around."""

from pathlib import Path


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
