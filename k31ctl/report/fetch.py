"""A download as people and pipelines read it."""

import json
import shlex
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from k31ctl import units
from k31ctl.core.gates import Gate, require_all, require_names
from k31ctl.errors import K31Error
from k31ctl.fetch.authority import Authority, AuthorityKind
from k31ctl.fetch.events import Event, Finished, Planned, Retried
from k31ctl.fetch.hub import Snapshot
from k31ctl.fetch.part_plan import PartPlan
from k31ctl.fetch.planning import FetchPlan, FileState
from k31ctl.fetch.space import require_room
from k31ctl.report.envelope import envelope, plain
from k31ctl.report.fetch_part import (
    part_finished_text,
    part_inputs,
    part_plan_text,
    part_planned,
)
from k31ctl.report.fetch_progress import Lines
from k31ctl.report.fetch_words import (
    expected_time,
    files,
    licence_text,
    outcome,
    room,
    size,
    space_result,
)


def show_fetch_plan(
    plan: FetchPlan | PartPlan, *, as_json: bool, gates: Sequence[Gate] = ()
) -> None:
    """Write what would be done to standard output; raises RefusedError where there is no room."""
    _check_names(gates, plan)
    if as_json:
        sys.stdout.write(envelope("fetch", inputs=_inputs(plan), result=planned_result(plan)))
    else:
        sys.stdout.write(plan_text(plan))
    if plan.space is not None:
        require_room(plan.space)
    _require(gates, planned_result(plan) | _NOTHING_YET, where=str(plan.folder))


def show_fetch(
    events: Generator[Event, None, None],
    *,
    as_json: bool,
    as_events: bool,
    gates: Sequence[Gate] = (),
) -> None:
    """Show a download while it runs; the answer goes to standard output, the rest to error.

    Raises the failure where a file could not be had or proven, and GateError for the first
    condition that is not met; an interrupt is shown with the command that goes on. A condition on
    a name that the result does not have is refused before the first byte. The last of the events is
    ``Finished``, or ``Failed`` where there is nothing to sum up.
    """
    lines = Lines(sys.stderr)
    try:
        with closing(events):
            plan, finished = _shown(
                events, lines, gates=gates, as_json=as_json, as_events=as_events
            )
    except K31Error as error:
        if as_events:
            sys.stdout.write(_failed_line(error))
        raise
    except KeyboardInterrupt:
        lines.clear()
        lines.write(f"stopped; what is here is kept. To go on:\n  {resume_command()}\n")
        raise
    finally:
        lines.clear()
    result = planned_result(plan) | finished_result(finished)
    if as_json:
        sys.stdout.write(envelope("fetch", inputs=_inputs(plan), result=result))
    elif not as_events:
        sys.stdout.write(finished_text(plan, finished))
    if finished.failure is not None:
        raise finished.failure
    _require(gates, result, where=str(plan.folder))


def show_retry(what: str, reason: str, wait_s: float) -> None:
    """Write to standard error that a hub is asked again, before there is anything else to show."""
    Lines(sys.stderr).show(Retried(path=what, reason=reason, wait_s=wait_s))


def _shown(
    events: Iterator[Event],
    lines: Lines,
    *,
    gates: Sequence[Gate],
    as_json: bool,
    as_events: bool,
) -> tuple[FetchPlan | PartPlan, Finished]:
    """Show each event as it comes; returns what was planned and what came of it."""
    plan: FetchPlan | PartPlan | None = None
    finished: Finished | None = None
    for event in events:
        match event:
            case Planned():
                plan = event.plan
                _check_names(gates, plan)
                if not (as_json or as_events):
                    lines.write(plan_text(plan))
            case Finished():
                finished = event
            case _:
                lines.show(event)
        if as_events:
            sys.stdout.write(event_line(event))
            sys.stdout.flush()
    assert plan is not None
    assert finished is not None
    return plan, finished


def _check_names(gates: Sequence[Gate], plan: FetchPlan | PartPlan) -> None:
    """Raise UsageError for a condition on what the result does not have."""
    require_names(gates, planned_result(plan) | _NOTHING_YET)


def _require(gates: Sequence[Gate], result: dict[str, Any], *, where: str) -> None:
    """Raise GateError for the first condition that is not met."""
    require_all(
        gates,
        result,
        where=f"--gate, {where}",
        remedy="change what is fetched, or change the gate",
    )


def plan_text(plan: FetchPlan | PartPlan) -> str:
    """Return what will be done, in words."""
    if isinstance(plan, PartPlan):
        return part_plan_text(plan)
    snapshot, space = plan.snapshot, plan.space
    total = f"{units.show(plan.bytes_total, 'B')} ({units.show_bytes(plan.bytes_total)})"
    rows = []
    for state, label in (
        (FileState.PROVEN, "already here and proven"),
        (FileState.PRESENT, "here, still to be checked"),
        (FileState.PARTIAL, "here in part"),
    ):
        if plan.num_in(state):
            rows.append((label, f"{size(plan.bytes_in(state))} in {files(plan.num_in(state))}"))
    rows.append(("to download", _to_download(plan)))
    if space is not None:
        rows.append((f"free on {space.mount}", f"{size(space.free_bytes)}, {room(space)}"))
    if space is not None and space.quota_bytes is not None:
        rows.append(("left of your quota", size(space.quota_bytes)))
    rows.append(("licence", licence_text(snapshot.licence, snapshot.gated)))
    rows.append(("proven against", _authority(snapshot)))
    rows += [("note", note) for note in plan.notes]
    head = f"{snapshot.repo} at {snapshot.commit[:8]}: {files(len(plan.files))}, {total}\n"
    return head + "".join(f"{label:<26}{text}\n" for label, text in rows)


def finished_text(plan: FetchPlan | PartPlan, finished: Finished) -> str:
    """Return what came of it, in words."""
    if isinstance(plan, PartPlan):
        return part_finished_text(plan, finished)
    done = f"{finished.num_verified} of {files(finished.num_files)} here and proven"
    return (
        f"{done}: {outcome(finished)}\n"
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
            fields: dict[str, Any] = planned_result(event.plan) | {"inputs": _inputs(event.plan)}
        case Finished():
            fields = finished_result(event)
        case _:
            fields = plain(event)
    return json.dumps({"event": type(event).__name__} | fields, sort_keys=True) + "\n"


def _failed_line(error: K31Error) -> str:
    """Return the last line of a run that ends without a result: before its plan, as a rule."""
    fields = {
        "what": error.what,
        "where": error.place,
        "remedy": error.remedy,
        "exit_code": error.exit_code,
    }
    return json.dumps({"event": "Failed"} | fields, sort_keys=True) + "\n"


def resume_command() -> str:
    """Return the command that goes on: the one that was given."""
    return shlex.join(["k31ctl", *sys.argv[1:]])


def _inputs(plan: FetchPlan | PartPlan) -> dict[str, Any]:
    if isinstance(plan, PartPlan):
        return part_inputs(plan)
    return {
        "repo": plan.snapshot.repo,
        "revision": plan.revision,
        "endpoint": plan.snapshot.endpoint,
        "to": plan.target or str(plan.folder),
    }


def planned_result(plan: FetchPlan | PartPlan) -> dict[str, Any]:
    """What would be done, under the names that JSON and gates see."""
    if isinstance(plan, PartPlan):
        return part_planned(plan)
    space = plan.space
    return {
        "commit": plan.snapshot.commit,
        "licence": plan.snapshot.licence,
        "proven_against": _proven_against(plan.snapshot),
        "notes": plan.notes,
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
    } | space_result(space)


# Names that only a finished run fills, so that a gate may name them from the start.
_NOTHING_YET: Final[dict[str, Any]] = {"num_verified": 0, "num_retries": 0, "num_refetched": 0}


def finished_result(finished: Finished) -> dict[str, Any]:
    """What came of it, under the names that JSON and gates see."""
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
    return size(plan.bytes_to_get) + expected_time(plan)


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
        lines = "".join(f"from    {use.source}  {size(use.num_bytes)}\n" for use in uses)
        lines += f"proven  against {_authority(plan.snapshot)}\n"
    return lines
