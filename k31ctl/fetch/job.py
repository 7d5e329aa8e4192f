"""A download from the first look to the record beside the weights, as a stream of events."""

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from k31ctl.errors import InputError, RefusedError
from k31ctl.fetch.events import Event, Finished, Planned, Waiting
from k31ctl.fetch.hub import Hub, HubFile, Snapshot
from k31ctl.fetch.journal import Journal, drop_temporary
from k31ctl.fetch.kept_origins import kept_origins
from k31ctl.fetch.licence_text import is_licence, licence_text
from k31ctl.fetch.listing import write_listing
from k31ctl.fetch.lock import locked
from k31ctl.fetch.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestFile,
    acceptance_of,
    manifest_file,
    manifest_of,
    read_manifest,
    write_manifest,
)
from k31ctl.fetch.origins import Origins
from k31ctl.fetch.own_places import require_own_places
from k31ctl.fetch.pace import events_of
from k31ctl.fetch.partial_marker import MARKER_NAME, is_marker
from k31ctl.fetch.planning import FetchPlan, FileState, chosen_files, file_plan
from k31ctl.fetch.rate_probe import measured_rate
from k31ctl.fetch.space import drop_probes, require_room, require_spellings, space_for
from k31ctl.fetch.throttle import Throttle
from k31ctl.fetch.trouble import disk_failure
from k31ctl.fetch.workers import Workers
from k31ctl.values import frozen

_FEWEST_TIMED_BYTES: Final = 4 * 1024 * 1024


@frozen
class FetchRequest:
    """What was asked for; ``store`` is a prefix in object storage, empty for ``folder``."""

    repo: str
    revision: str
    folder: Path
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    connections: int
    rate_bytes_per_s: float | None
    wait: bool
    sync: bool
    accepted_by: str | None
    store: str = ""


def look(hub: Hub, request: FetchRequest) -> FetchPlan:
    """Return what would be done; nothing is written, and a little is read to measure the rate.

    Raises RefusedError where the target cannot be written; whether there is room is in the plan.
    """
    require_own_places(request.folder)
    snapshot = hub.snapshot(request.repo, request.revision)
    return _plan(hub, request, snapshot, Journal(request.folder), write=False)


def run(
    hub: Hub, request: FetchRequest, throttle: Throttle, *, now: Callable[[], str]
) -> Generator[Event, None, None]:
    """Fetch, prove and record; ``now`` gives the time for the record, in ISO 8601.

    Raises a K31Error where the work cannot begin; what fails later is in ``Finished``. Closing the
    iterator stops the work within a moment and keeps what is here.
    """
    try:
        yield from _run(hub, request, throttle, now=now)
    except OSError as error:
        raise disk_failure(error, where=str(request.folder)) from None
    finally:
        hub.stop()


def _run(
    hub: Hub, request: FetchRequest, throttle: Throttle, *, now: Callable[[], str]
) -> Generator[Event, None, None]:
    start = time.monotonic()
    require_own_places(request.folder)
    snapshot = hub.snapshot(request.repo, request.revision)
    plan = _plan(hub, request, snapshot, Journal(request.folder), write=True)
    with ExitStack() as held:
        try:
            held.enter_context(locked(request.folder, wait=False, on_wait=lambda _: None))
        except RefusedError as refused:
            if not request.wait:
                raise
            yield Waiting(holder=refused.what.partition(" is ")[0])
            held.enter_context(locked(request.folder, wait=True, on_wait=lambda _: None))
        journal = Journal(request.folder)
        plan = _plan(hub, request, snapshot, journal, write=True)
        journal.begin(request.repo)
        journal.drop_strangers(snapshot.files)
        drop_probes(request.folder)
        drop_temporary(request.folder, MANIFEST_NAME)
        write_listing(request.folder, snapshot, revision=request.revision)
        hub.origins = kept_origins(request.folder)
        for entry in plan.files:
            if entry.state is FileState.MISSING:
                hub.origins.forget(entry.file.path)
        yield Planned(plan=plan)
        workers = Workers(hub, snapshot, plan, journal, throttle, sync=request.sync)
        yield from events_of(workers, bytes_total=plan.bytes_total, connections=request.connections)
        yield _finished(workers, plan, journal, request, hub.origins, start=start, now=now)


def _plan(
    hub: Hub, request: FetchRequest, snapshot: Snapshot, journal: Journal, *, write: bool
) -> FetchPlan:
    files = chosen_files(snapshot, include=request.include, exclude=request.exclude)
    require_spellings(request.folder, files)
    entries = tuple(file_plan(file, journal) for file in files)
    to_get = sum(entry.bytes_to_get for entry in entries)
    space = space_for(request.folder, files, bytes_to_write=to_get, write=write)
    if write:
        require_room(space)
    rate, source = request.rate_bytes_per_s, "given"
    if rate is None and journal.rate_bytes_per_s:
        rate, source = journal.rate_bytes_per_s, "as last time"
    if rate is None and to_get and not write:
        largest = max(files, key=lambda file: file.size_bytes)
        rate, source = measured_rate(hub, snapshot, largest), "measured just now"
    return FetchPlan(
        snapshot=snapshot,
        revision=request.revision,
        folder=request.folder,
        files=entries,
        space=space,
        rate_bytes_per_s=rate,
        rate_source=source if rate else "",
    )


def _finished(
    workers: Workers,
    plan: FetchPlan,
    journal: Journal,
    request: FetchRequest,
    origins: Origins,
    *,
    start: float,
    now: Callable[[], str],
) -> Finished:
    """Write the record where all is proven, and sum up."""
    verified = workers.verified()
    seconds = time.monotonic() - start
    if workers.bytes_downloaded > _FEWEST_TIMED_BYTES:
        journal.note_rate(workers.bytes_downloaded / max(seconds, 1e-6))
    if len(verified) == len(plan.files):
        journal.finish()
        proofs = [(entry.file, verified[entry.file.path]) for entry in plan.files]
        files = [
            manifest_file(file, sha256=digest, sources=origins.of(file.path))
            for file, digest in proofs + _proven_before(plan, journal)
        ]
        record = _record(plan, files, request, now())
        if record.is_complete and not any(is_marker(file.path) for file in record.files):
            (request.folder / MARKER_NAME).unlink(missing_ok=True)  # a part that has become whole
        write_manifest(request.folder, record)
    return Finished(
        num_files=len(plan.files),
        num_verified=len(verified),
        bytes_total=plan.bytes_total,
        bytes_downloaded=workers.bytes_downloaded,
        bytes_reused=workers.bytes_reused,
        num_retries=workers.num_retries,
        num_refetched=workers.num_refetched,
        seconds=seconds,
        sources=origins.uses(),
        failed=tuple(workers.failed),
        failure=workers.failure,
    )


def _record(
    plan: FetchPlan, files: list[ManifestFile], request: FetchRequest, now: str
) -> Manifest:
    """Return the record; who accepted the licence of this commit is kept from the one before."""
    try:
        before = read_manifest(request.folder)
    except InputError:
        before = None
    acceptance = acceptance_of(before, plan.snapshot, accepted_by=request.accepted_by, now=now)
    texts = [
        licence_text(request.folder, file.path, sha256=file.sha256)
        for file in files
        if is_licence(file.path)
    ]
    return manifest_of(
        plan.snapshot,
        files,
        revision=request.revision,
        fetched_at=now,
        acceptance=acceptance,
        licence_texts=texts,
    )


def _proven_before(plan: FetchPlan, journal: Journal) -> list[tuple[HubFile, str]]:
    """Return files of this commit that an earlier run with other patterns has proven."""
    chosen = {entry.file.path for entry in plan.files}
    return [
        (file, proof.sha256)
        for file in plan.snapshot.files
        if file.path not in chosen and (proof := journal.proof(file)) is not None
    ]
