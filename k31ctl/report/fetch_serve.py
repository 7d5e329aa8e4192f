"""A folder that is served: where, what, and now and then how much was sent."""

import json
import sys
from typing import Any

from k31ctl import units
from k31ctl.fetch.peer_server import PeerServer, Served, Serving, serve
from k31ctl.report.durations import duration
from k31ctl.report.envelope import plain


def show_serving(server: PeerServer, *, as_events: bool) -> None:
    """Show a server until it is interrupted; the interrupt goes on to the caller."""
    try:
        for event in serve(server):
            _show(event, as_events=as_events)
    finally:
        _show(server.totals(is_final=True), as_events=as_events)


def _show(event: Serving | Served, *, as_events: bool) -> None:
    if as_events:
        fields: dict[str, Any] = {"event": type(event).__name__} | plain(event)
        sys.stdout.write(json.dumps(fields, sort_keys=True) + "\n")
    else:
        sys.stdout.write(_serving(event) if isinstance(event, Serving) else _served(event))
    sys.stdout.flush()


def _serving(event: Serving) -> str:
    counts = event.counts
    lines = [
        f"{event.repo} at {event.commit[:8]}, {counts.num_proven} of {counts.num_files} files "
        f"proven ({units.show(counts.bytes_proven, 'B')})",
        f"serving {event.folder} at {event.url}",
        f"  k31ctl fetch {event.repo} --to DIR --from-peer {event.url}",
        f"  HF_ENDPOINT={event.url} hf download {event.repo} --revision {event.revision}",
    ]
    if counts.num_proven < counts.num_files:
        lines.append(
            "files that are not proven are not given; those on their way follow by themselves,\n"
            f"for others run k31ctl verify {event.folder}"
        )
    if event.is_open:
        lines.append(
            "anyone who reaches this port can read these files: --host narrows it, "
            "K31CTL_PEER_TOKEN\nasks for a token"
        )
    return "\n".join(lines) + "\n"


def _served(event: Served) -> str:
    head = "stopped after" if event.is_final else "after"
    rate = units.show(event.bytes_sent / max(event.seconds, 1e-6), "B/s")
    text = (
        f"{head} {duration(event.seconds)}: {event.num_requests:,} requests, "
        f"{units.show(event.bytes_sent, 'B')} sent ({rate} on average)"
    )
    if not event.is_final:
        text += f", {event.num_connections} connections open"
    if event.num_refused:
        text += f"; {event.num_refused:,} connections told to come back"
    return text + "\n"
