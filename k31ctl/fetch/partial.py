"""A part of a checkpoint as valid safetensors files with their own index, marked as a part."""

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from k31ctl.errors import EndpointError, InputError, NotProvenError, RefusedError
from k31ctl.fetch.digest_check import check_files, expected_files
from k31ctl.fetch.events import Event, Finished, Planned, Waiting
from k31ctl.fetch.hub import Hub
from k31ctl.fetch.journal import sync_folder
from k31ctl.fetch.lock import locked
from k31ctl.fetch.origins import SourceUse
from k31ctl.fetch.pace import events_of
from k31ctl.fetch.part_notes import PartNotes, work_folder
from k31ctl.fetch.part_plan import (
    PartPlan,
    PartRequest,
    WantedPart,
    part_plan,
    published,
    wanted_part,
)
from k31ctl.fetch.part_records import write_records
from k31ctl.fetch.part_workers import PartWorkers
from k31ctl.fetch.partial_marker import read_marker
from k31ctl.fetch.proven import ProvenFiles
from k31ctl.fetch.rate_probe import measured_rate
from k31ctl.fetch.source import HubSource, Source
from k31ctl.fetch.space import require_room
from k31ctl.fetch.throttle import Throttle
from k31ctl.fetch.trouble import disk_failure
from k31ctl.fetch.watch import Watch


def look_at_part(hub: Hub, repo: str, request: PartRequest) -> PartPlan:
    """Return what would be done: headers are read, and a little more to measure the rate."""
    source = HubSource(hub, hub.snapshot(repo, request.revision))
    wanted = wanted_part(source, request.selection)
    _require_ranges(hub, source)
    _require_free(request, wanted)
    rate, told = request.rate_bytes_per_s, "given"
    if rate is None:
        files = [
            file
            for each in wanted.layout.files
            if (file := published(source, each.path)) is not None
        ]
        assert source.snapshot is not None
        largest = max(files, key=lambda file: file.size_bytes)
        rate, told = measured_rate(hub, source.snapshot, largest), "measured just now"
    return part_plan(source, request, wanted, write=False, rate=rate, rate_source=told)


def fetch_hub_part(
    hub: Hub, repo: str, request: PartRequest, throttle: Throttle, *, now: Callable[[], str]
) -> Generator[Event, None, None]:
    """Fetch a part from a repository on a hub; see ``fetch_part``."""
    source = HubSource(hub, hub.snapshot(repo, request.revision))
    yield from fetch_part(source, request, throttle, hub=hub, now=now)


def fetch_part(
    source: Source,
    request: PartRequest,
    throttle: Throttle,
    *,
    now: Callable[[], str],
    hub: Hub | None = None,
) -> Generator[Event, None, None]:
    """Write the chosen tensors into a new folder, and tell what happens.

    Everything is written beside the target and takes its name in one step at the end, so a folder
    of that name is always a whole part. Closing the iterator stops the work; what is here is kept
    where the source has a commit, and the next run for the same part goes on from it.

    Raises UsageError for a selection that chooses all or nothing, InputError for a target that
    exists or a source that is not sound; what fails later is in ``Finished``.
    """
    begun_s = time.monotonic()
    wanted = wanted_part(source, request.selection)
    if hub is not None:
        _require_ranges(hub, source)
    with ExitStack() as held:
        is_there = _require_free(request, wanted)
        if not is_there:
            _planned(source, request, wanted)
            yield from _lock(request, held)
            is_there = _require_free(request, wanted)  # another process may have made it
        notes = PartNotes(work_folder(request.folder), wanted.key)
        if is_there:
            notes.finish()
            yield from _found(source, request, wanted, begun_s=begun_s)
            return
        if not source.commit:
            notes.drop()
        try:
            yield from _fetched(source, request, throttle, notes, wanted, hub, begun_s, now)
        finally:
            notes.close()
            if not source.commit:
                notes.drop()
                notes.finish()


def _fetched(
    source: Source,
    request: PartRequest,
    throttle: Throttle,
    notes: PartNotes,
    wanted: WantedPart,
    hub: Hub | None,
    begun_s: float,
    now: Callable[[], str],
) -> Iterator[Event]:
    plan = _planned(source, request, wanted)
    try:
        notes.begin()
    except OSError as error:
        raise disk_failure(error, where=str(notes.folder)) from error
    yield Planned(plan=plan)
    workers = PartWorkers(
        source,
        wanted.layout,
        notes,
        throttle,
        stopped=hub.stopped if hub is not None else threading.Event(),
        stop=hub.stop if hub is not None else lambda: None,
        sync=request.sync,
        digests={
            file.path: digest
            for file, digest in zip(wanted.layout.files, plan.published, strict=True)
            if digest is not None
        },
    )
    if hub is not None:
        hub.on_retry = workers.retried
    yield from events_of(workers, bytes_total=plan.bytes_total, connections=request.connections)
    if workers.failure is None:
        try:
            write_records(
                notes.unfinished,
                plan,
                request.selection,
                workers.verified,
                marks=workers.marks,
                accepted_by=request.accepted_by,
                now=now,
            )
            _take_name(notes, request)
        except OSError as error:
            raise disk_failure(error, where=str(request.folder)) from error
    uses = hub.origins.uses() if hub is not None else ()
    yield _finished(workers, plan, uses, begun_s=begun_s)


def _finished(
    workers: PartWorkers, plan: PartPlan, sources: tuple[SourceUse, ...], *, begun_s: float
) -> Finished:
    return Finished(
        num_files=len(plan.wanted.layout.files),
        num_verified=len(workers.verified),
        bytes_total=plan.bytes_total,
        bytes_downloaded=workers.bytes_downloaded,
        bytes_reused=workers.bytes_reused,
        num_retries=workers.num_retries,
        num_refetched=workers.num_refetched,
        seconds=time.monotonic() - begun_s,
        sources=sources,
        failed=tuple(workers.failed),
        failure=workers.failure,
    )


def _planned(source: Source, request: PartRequest, wanted: WantedPart) -> PartPlan:
    """The plan of a run; raises RefusedError where there is no room, and then leaves nothing."""
    rate = request.rate_bytes_per_s
    try:
        plan = part_plan(source, request, wanted, write=True, rate=rate, rate_source="given")
        require_room(plan.space)
    except RefusedError:
        folder = work_folder(request.folder)
        for path in (folder / ".k31ctl", folder):
            with suppress(OSError):
                path.rmdir()
        raise
    return plan


def _lock(request: PartRequest, held: ExitStack) -> Iterator[Event]:
    """Hold the work of a target, as long as ``held`` does."""
    folder = work_folder(request.folder)
    try:
        held.enter_context(locked(folder, wait=False, on_wait=lambda _: None))
    except RefusedError as refused:
        if not request.wait:
            raise
        yield Waiting(holder=refused.what.partition(" is ")[0])
        held.enter_context(locked(folder, wait=True, on_wait=lambda _: None))


def _require_free(request: PartRequest, wanted: WantedPart) -> bool:
    """Whether the target is this very part; raises InputError where it is anything else."""
    target = request.folder
    if not os.path.lexists(target):
        return False
    marker = read_marker(target) if target.is_dir() else None
    if marker is not None and marker.get("key") == wanted.key:
        return True
    if target.is_dir() and not target.is_symlink() and not any(target.iterdir()):
        if target.is_mount():
            raise InputError(
                "a filesystem of its own cannot take a part's name",
                where=str(target),
                remedy=f"name a new folder in it, such as --to {target / 'part'}",
            )
        return False
    what = "holds another part" if marker is not None else "exists already"
    raise InputError(f"the target {what}", where=str(target), remedy="name a new folder with --to")


def _found(
    source: Source, request: PartRequest, wanted: WantedPart, *, begun_s: float
) -> Iterator[Event]:
    """Hold a part that is there against its record."""
    plan = part_plan(source, request, wanted, write=False, rate=None, rate_source="")
    everything = tuple(
        sum(chunk.num_bytes for chunk in wanted.layout.chunks if chunk.file == number)
        for number in range(len(wanted.layout.files))
    )
    plan = replace(plan, file_bytes_here=everything)
    yield Planned(plan=plan)
    _, expected = expected_files(request.folder, None)
    proven = ProvenFiles(request.folder, forget=False)
    check = check_files(
        request.folder,
        expected,
        proven=proven,
        num_jobs=request.connections,
        only_sizes=False,
        watch=Watch(),
    )
    proven.save()
    failure = None
    if check.findings:
        first = check.findings[0]
        failure = NotProvenError(
            f"{first.file} {first.problem}",
            where=str(request.folder),
            remedy=f"k31ctl verify {request.folder} --repair fetches what is damaged",
        )
    bad = {finding.file for finding in check.findings}
    num_files = len(wanted.layout.files)
    yield Finished(
        num_files=num_files,
        num_verified=sum(file.path not in bad for file in wanted.layout.files),
        bytes_total=plan.bytes_total,
        bytes_downloaded=0,
        bytes_reused=plan.bytes_total if not bad else 0,
        num_retries=0,
        num_refetched=0,
        seconds=time.monotonic() - begun_s,
        sources=(),
        failed=(),
        failure=failure,
    )


def _require_ranges(hub: Hub, source: Source) -> None:
    """Raise EndpointError where a server sends whole files for every range."""
    if not hub.supports_ranges:
        raise EndpointError(
            "the server sends whole files where a range is asked for",
            where=source.label,
            remedy="fetch the whole checkpoint, or name another --endpoint",
        )


def _take_name(notes: PartNotes, request: PartRequest) -> None:
    """Give the finished folder its name, durably, and remove the work around it."""
    target: Path = request.folder
    if request.sync:
        sync_folder(notes.unfinished)
    notes.unfinished.rename(target)
    sync_folder(target.parent)
    notes.finish()
