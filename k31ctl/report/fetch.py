"""A download as people and pipelines read it."""

import json
import shlex
import sys
from collections.abc import Iterator
from typing import Any

from k31ctl import units
from k31ctl.fetch.authority import Authority, AuthorityKind
from k31ctl.fetch.events import Event, Finished, Planned
from k31ctl.fetch.hub import Snapshot
from k31ctl.fetch.planning import FetchPlan, FileState
from k31ctl.fetch.space import Space, require_room
from k31ctl.report.durations import duration
from k31ctl.report.envelope import envelope, plain
from k31ctl.report.fetch_progress import Lines


def show_fetch_plan(plan: FetchPlan, *, as_json: bool) -> None:
    """Write what would be done to standard output; raises RefusedError where there is no room."""
    if as_json:
        sys.stdout.write(envelope("fetch", inputs=_inputs(plan), result=_planned(plan)))
    else:
        sys.stdout.write(plan_text(plan))
    if plan.space is not None:
        require_room(plan.space)


def show_fetch(events: Iterator[Event], *, as_json: bool, as_events: bool) -> None:
    """Show a download while it runs; the answer goes to standard output, the rest to error.

    Raises the failure where a file could not be had or proven; an interrupt is shown with the
    command that goes on.
    """
    lines = Lines(sys.stderr)
    plan: FetchPlan | None = None
    finished: Finished | None = None
    try:
        for event in events:
            match event:
                case Planned():
                    plan = event.plan
                    if not (as_json or as_events):
                        sys.stderr.write(plan_text(plan))
                case Finished():
                    finished = event
                case _:
                    lines.show(event)
            if as_events:
                sys.stdout.write(event_line(event))
                sys.stdout.flush()
    except KeyboardInterrupt:
        lines.clear()
        events.close()  # type: ignore[attr-defined]
        sys.stderr.write(f"stopped; what is here is kept. To go on:\n  {resume_command()}\n")
        raise
    lines.clear()
    assert plan is not None
    assert finished is not None
    if as_json:
        sys.stdout.write(
            envelope("fetch", inputs=_inputs(plan), result=_planned(plan) | _result(finished))
        )
    elif not as_events:
        sys.stdout.write(finished_text(plan, finished))
    if finished.failure is not None:
        raise finished.failure


def plan_text(plan: FetchPlan) -> str:
    """Return what will be done, in words."""
    snapshot, space = plan.snapshot, plan.space
    total = f"{units.show(plan.bytes_total, 'B')} ({units.show_bytes(plan.bytes_total)})"
    rows = []
    for state, label in (
        (FileState.PROVEN, "already here and proven"),
        (FileState.PRESENT, "here, still to be checked"),
        (FileState.PARTIAL, "here in part"),
    ):
        if plan.num_in(state):
            rows.append((label, f"{_size(plan.bytes_in(state))} in {_files(plan.num_in(state))}"))
    rows.append(("to download", _to_download(plan)))
    if space is not None:
        rows.append((f"free on {space.mount}", f"{_size(space.free_bytes)}, {_room(space)}"))
    if space is not None and space.quota_bytes is not None:
        rows.append(("left of your quota", _size(space.quota_bytes)))
    rows.append(("licence", _licence(plan)))
    rows.append(("proven against", _authority(snapshot)))
    rows += [("note", note) for note in snapshot.notes]
    head = f"{snapshot.repo} at {snapshot.commit[:8]}: {_files(len(plan.files))}, {total}\n"
    return head + "".join(f"{label:<26}{text}\n" for label, text in rows)


def finished_text(plan: FetchPlan, finished: Finished) -> str:
    """Return what came of it, in words."""
    rate = finished.bytes_downloaded / max(finished.seconds, 1e-6)
    done = f"{finished.num_verified} of {_files(finished.num_files)} here and proven"
    parts = [f"{_size(finished.bytes_downloaded)} downloaded in {duration(finished.seconds)}"]
    if finished.bytes_downloaded:
        parts[0] += f" ({units.show(rate, 'B/s')})"
    if finished.bytes_reused:
        parts.append(f"{_size(finished.bytes_reused)} reused")
    if finished.num_retries:
        parts.append(f"{finished.num_retries} requests repeated")
    if finished.num_refetched:
        parts.append(f"{_files(finished.num_refetched)} fetched again after wrong bytes")
    return (
        f"{done}: {', '.join(parts)}\n"
        + _sources(plan, finished)
        + (
            f"record  {plan.target or plan.folder}/k31ctl-manifest.json\n"
            if finished.is_proven
            else ""
        )
    )


def event_line(event: Event) -> str:
    """Return an event as one line of JSON."""
    match event:
        case Planned():
            fields: dict[str, Any] = _planned(event.plan) | {"inputs": _inputs(event.plan)}
        case Finished():
            fields = _result(event)
        case _:
            fields = plain(event)
    return json.dumps({"event": type(event).__name__} | fields, sort_keys=True) + "\n"


def resume_command() -> str:
    """Return the command that goes on: the one that was given."""
    return shlex.join(["k31ctl", *sys.argv[1:]])


def _inputs(plan: FetchPlan) -> dict[str, Any]:
    return {
        "repo": plan.snapshot.repo,
        "revision": plan.revision,
        "endpoint": plan.snapshot.endpoint,
        "to": plan.target or str(plan.folder),
    }


def _planned(plan: FetchPlan) -> dict[str, Any]:
    space = plan.space
    return {
        "commit": plan.snapshot.commit,
        "licence": plan.snapshot.licence,
        "proven_against": _proven_against(plan.snapshot),
        "notes": plan.snapshot.notes,
        "gated": plan.snapshot.gated,
        "files": len(plan.files),
        "file_list": [
            {
                "path": entry.file.path,
                "size_bytes": entry.file.size_bytes,
                "sha256": entry.file.sha256,
                "bytes_here": entry.bytes_here,
                "state": entry.state.value,
            }
            for entry in plan.files
        ],
        "bytes_total": plan.bytes_total,
        "bytes_to_get": plan.bytes_to_get,
        "bytes_proven": plan.bytes_in(FileState.PROVEN),
        "bytes_downloaded": 0,
        "bytes_reused": 0,
        "sources": [],
        "verified": plan.num_in(FileState.PROVEN) == len(plan.files),
        "seconds": 0.0,
        "eta_s": plan.eta_s,
        "rate_bytes_per_s": plan.rate_bytes_per_s,
        "rate_source": plan.rate_source or None,
        "filesystems": [_filesystem(space)] if space is not None else [],
        "free_bytes": space.free_bytes if space is not None else None,
    }


def _filesystem(space: Space) -> dict[str, Any]:
    return {
        "mount": space.mount,
        "free_bytes": space.free_bytes,
        "needed_bytes": space.needed_bytes,
        "free_inodes": space.free_inodes,
        "quota_bytes": space.quota_bytes,
    }


def _result(finished: Finished) -> dict[str, Any]:
    return {
        "verified": finished.is_proven,
        "num_verified": finished.num_verified,
        "bytes_total": finished.bytes_total,
        "bytes_downloaded": finished.bytes_downloaded,
        "bytes_reused": finished.bytes_reused,
        "num_retries": finished.num_retries,
        "num_refetched": finished.num_refetched,
        "seconds": finished.seconds,
        "sources": plain(finished.sources),
        "failed": plain(finished.failed),
    }


def _proven_against(snapshot: Snapshot) -> dict[str, Any]:
    hub = Authority(kind=AuthorityKind.HUB, source=snapshot.endpoint)
    found: dict[str, Any] = plain(snapshot.authority or hub)
    return found


def _to_download(plan: FetchPlan) -> str:
    text = _size(plan.bytes_to_get)
    if plan.bytes_to_get and plan.eta_s is not None and plan.rate_bytes_per_s:
        rate = units.show(plan.rate_bytes_per_s, "B/s")
        text += f", about {duration(plan.eta_s)} at {rate} ({plan.rate_source})"
    return text


def _room(space: Space) -> str:
    if space.left_bytes < 0:
        return f"{_size(-space.left_bytes)} too little"
    return f"enough ({_size(space.left_bytes)} are left afterwards)"


def _licence(plan: FetchPlan) -> str:
    snapshot = plan.snapshot
    gate = f"gated ({snapshot.gated})" if snapshot.gated else "not gated"
    return f"{snapshot.licence or 'not named by the hub'}; {gate}"


def _authority(snapshot: Snapshot) -> str:
    authority = snapshot.authority
    if authority is None:
        return f"what {snapshot.endpoint} publishes"
    return f"the record of {authority.source} alone, no hub ({authority.reason})"


def _sources(plan: FetchPlan, finished: Finished) -> str:
    """Say what each source gave, where there was more than the hub, and whose word it rests on."""
    uses = finished.sources
    authority = plan.snapshot.authority
    lines = ""
    if authority is not None or any(use.source != plan.snapshot.endpoint for use in uses):
        lines = "".join(f"from    {use.source}  {_size(use.num_bytes)}\n" for use in uses)
        lines += f"proven  against {_authority(plan.snapshot)}\n"
    return lines


def _size(num_bytes: int) -> str:
    return units.show(num_bytes, "B")


def _files(count: int) -> str:
    return f"{count:,} file" + ("" if count == 1 else "s")
