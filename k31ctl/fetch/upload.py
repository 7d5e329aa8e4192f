"""A repository into object storage: each file appears there once its bytes are proven."""

import json
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Final

from k31ctl.errors import K31Error, NotProvenError
from k31ctl.fetch.digest import Digest
from k31ctl.fetch.events import (
    Event,
    FileFailed,
    FileStarted,
    FileVerified,
    Finished,
    Mismatched,
    Planned,
    Progress,
    Retried,
)
from k31ctl.fetch.hub import Hub, HubFile, Snapshot
from k31ctl.fetch.job import FetchRequest
from k31ctl.fetch.licence_text import LicenceText, is_licence, licence_text_of
from k31ctl.fetch.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    acceptance_of,
    manifest_document,
    manifest_file,
    manifest_from,
    manifest_of,
)
from k31ctl.fetch.object_store import ObjectStore
from k31ctl.fetch.planning import FetchPlan, FilePlan, FileState, chosen_files
from k31ctl.fetch.store_journal import StoreJournal
from k31ctl.fetch.throttle import Throttle
from k31ctl.fetch.trouble import StoppedError, unprovable

_SMALL_BYTES: Final = 16 * 1024 * 1024
_MOST_AT_ONCE: Final = 4  # each holds two parts in memory
_MOST_ROUNDS: Final = 3
_TICK_S: Final = 0.25
_JOIN_S: Final = 1.5
_LICENCE_BYTES: Final = 2**20


def look_upload(hub: Hub, request: FetchRequest) -> FetchPlan:
    """Return what would be done; nothing is written."""
    store = ObjectStore(request.store)
    snapshot = hub.snapshot(request.repo, request.revision)
    return _plan(request, snapshot, StoreJournal(store))


def run_upload(
    hub: Hub, request: FetchRequest, throttle: Throttle, *, now: Callable[[], str]
) -> Generator[Event, None, None]:
    """Send what the prefix lacks, and the record last; ``now`` gives the time in ISO 8601.

    Raises a K31Error where the work cannot begin; what fails later is in ``Finished``. Closing the
    iterator stops the work within a moment; files that are there and proven stay.
    """
    store = ObjectStore(request.store)
    snapshot = hub.snapshot(request.repo, request.revision)
    journal = StoreJournal(store)
    journal.begin(request.repo)
    plan = _plan(request, snapshot, journal)
    yield Planned(plan=plan)
    senders = _Senders(hub, plan, store, journal, throttle)
    yield from senders.events(request.connections)
    if len(senders.verified) == len(plan.files):
        _write_record(store, plan, senders, journal, request, now())
    yield senders.finished()


def _plan(request: FetchRequest, snapshot: Snapshot, journal: StoreJournal) -> FetchPlan:
    files = chosen_files(snapshot, include=request.include, exclude=request.exclude)
    return FetchPlan(
        snapshot=snapshot,
        revision=request.revision,
        folder=request.folder,
        files=tuple(_file_plan(file, journal) for file in files),
        space=None,
        rate_bytes_per_s=request.rate_bytes_per_s,
        rate_source="given" if request.rate_bytes_per_s else "",
        target=request.store,
    )


def _file_plan(file: HubFile, journal: StoreJournal) -> FilePlan:
    if journal.proof(file) is not None:
        return FilePlan(file=file, state=FileState.PROVEN, bytes_here=file.size_bytes)
    return FilePlan(file=file, state=FileState.MISSING, bytes_here=0)


class _Senders:
    """The threads that send files, one each, and what they have done."""

    def __init__(
        self,
        hub: Hub,
        plan: FetchPlan,
        store: ObjectStore,
        journal: StoreJournal,
        throttle: Throttle,
    ) -> None:
        self._hub, self._plan, self._store = hub, plan, store
        self._journal, self._throttle = journal, throttle
        self._told: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending = deque(plan.files)
        self._begun_s = time.monotonic()
        self._in_flight: dict[str, int] = {}
        self.verified: dict[str, str] = {}
        self.bytes_sent = self.bytes_reused = self.num_retries = self.num_again = 0
        self.failed: list[FileFailed] = []
        self.failure: K31Error | None = None
        hub.on_retry = self._retried

    def events(self, connections: int) -> Iterator[Event]:
        """Start the threads and yield what they tell until nothing is left."""
        num = min(connections, _MOST_AT_ONCE)
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(num)]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads) or not self._told.empty():
                try:
                    yield self._told.get(timeout=_TICK_S)
                except queue.Empty:
                    yield self._progress()
        finally:
            self._hub.stop()
            deadline = time.monotonic() + _JOIN_S
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))

    def finished(self) -> Finished:
        """Return what came of it."""
        return Finished(
            num_files=len(self._plan.files),
            num_verified=len(self.verified),
            bytes_total=self._plan.bytes_total,
            bytes_downloaded=self.bytes_sent,
            bytes_reused=self.bytes_reused,
            num_retries=self.num_retries,
            num_refetched=self.num_again,
            seconds=time.monotonic() - self._begun_s,
            sources=self._hub.origins.uses(),
            failed=tuple(self.failed),
            failure=self.failure,
        )

    def _work(self) -> None:
        while not self._hub.stopped.is_set():
            with self._lock:
                if not self._pending:
                    return
                entry = self._pending.popleft()
            try:
                self._take(entry)
            except StoppedError:
                return
            except K31Error as error:
                self._fail(entry.file.path, error)
            finally:
                with self._lock:
                    self._in_flight.pop(entry.file.path, None)

    def _take(self, entry: FilePlan) -> None:
        file = entry.file
        proof = self._journal.proof(file) if entry.state is FileState.PROVEN else None
        if proof is not None:
            with self._lock:
                self.bytes_reused += file.size_bytes
            self._verified(file, proof.sha256, reused=True)
            return
        if not Digest(file).is_provable:
            raise unprovable(file.path, where=self._plan.snapshot.repo)
        self._told.put(
            FileStarted(path=file.path, size_bytes=file.size_bytes, bytes_reused=0, is_check=False)
        )
        digest = self._sent(file)
        self._journal.add(file, sha256=digest, sources=self._hub.origins.of(file.path))
        self._verified(file, digest, reused=False)

    def _sent(self, file: HubFile) -> str:
        """Send a file until its bytes were right; returns their SHA-256.

        The same wrong bytes twice come from the source and not from the way.
        """
        wrong: list[str] = []
        while len(wrong) < _MOST_ROUNDS:
            digest = Digest(file)
            if file.size_bytes <= _SMALL_BYTES:
                content = b"".join(self._pieces(file, digest))
                if digest.is_right:
                    self._store.put(file.path, content)
            else:
                with self._store.held_back(file.path, size_bytes=file.size_bytes) as held:
                    for piece in self._pieces(file, digest):
                        held.write(piece)
                    if digest.is_right:
                        held.commit()
            if digest.is_right:
                return digest.sha256
            if self._note_wrong(file):
                continue
            if digest.sha256 in wrong:
                break
            wrong.append(digest.sha256)
        raise NotProvenError(
            f"{file.path} arrives with a wrong digest every time",
            where=f"{self._plan.snapshot.repo} at {self._plan.snapshot.commit[:12]}",
            remedy="name another source; what arrived was not kept in the store",
        )

    def _pieces(self, file: HubFile, digest: Digest) -> Iterator[bytes]:
        with self._lock:
            self._in_flight[file.path] = 0
        for piece in self._hub.chunks(self._plan.snapshot, file, 0, file.size_bytes):
            while (wait_s := self._throttle.closed_s()) > 0:
                if self._hub.stopped.wait(min(wait_s, 1.0)):
                    raise StoppedError
            digest.update(memoryview(piece))
            with self._lock:
                self._in_flight[file.path] += len(piece)
                self.bytes_sent += len(piece)
            self._throttle.spend(len(piece))
            yield piece

    def _note_wrong(self, file: HubFile) -> bool:
        """Tell of wrong bytes; returns whether another source is left."""
        sources = ", ".join(self._hub.origins.of(file.path))
        reason = f"its SHA-256 is not the published one (from {sources})"
        self._told.put(Mismatched(path=file.path, reason=reason))
        with self._lock:
            self.num_again += 1
        return self._hub.wrong_bytes(file)

    def _verified(self, file: HubFile, digest: str, *, reused: bool) -> None:
        with self._lock:
            self.verified[file.path] = digest
        self._told.put(
            FileVerified(path=file.path, size_bytes=file.size_bytes, sha256=digest, reused=reused)
        )

    def _fail(self, path: str, error: K31Error) -> None:
        told = FileFailed(path=path, what=error.what, remedy=error.remedy)
        with self._lock:
            self.failed.append(told)
            self.failure = self.failure or error
        self._told.put(told)

    def _retried(self, path: str, reason: str, wait_s: float) -> None:
        with self._lock:
            self.num_retries += 1
        self._told.put(Retried(path=path, reason=reason, wait_s=wait_s))

    def _progress(self) -> Progress:
        sizes = {entry.file.path: entry.file.size_bytes for entry in self._plan.files}
        with self._lock:
            in_flight = tuple((p, n, sizes[p]) for p, n in self._in_flight.items())
            done = sum(sizes[path] for path in self.verified) + sum(n for _, n, _ in in_flight)
            sent = self.bytes_sent
        rate = sent / max(time.monotonic() - self._begun_s, 1e-6)
        return Progress(
            bytes_done=done,
            bytes_downloaded=sent,
            bytes_total=self._plan.bytes_total,
            rate_bytes_per_s=rate,
            eta_s=(self._plan.bytes_total - done) / rate if rate else None,
            path_bytes=in_flight,
        )


def _write_record(
    store: ObjectStore,
    plan: FetchPlan,
    senders: _Senders,
    journal: StoreJournal,
    request: FetchRequest,
    now: str,
) -> None:
    """Write the record: it is last, so that where it stands everything in it is there."""
    content = store.read_small(MANIFEST_NAME, most_bytes=MAX_MANIFEST_BYTES)
    before = manifest_from(content, where=store.url) if content else None
    files = [
        manifest_file(
            entry.file,
            sha256=senders.verified[entry.file.path],
            sources=proof.sources if (proof := journal.proof(entry.file)) else (),
        )
        for entry in plan.files
    ]
    manifest = manifest_of(
        plan.snapshot,
        files,
        revision=request.revision,
        fetched_at=now,
        acceptance=acceptance_of(before, plan.snapshot, accepted_by=request.accepted_by, now=now),
        licence_texts=[
            _licence_text(store, file.path, file.sha256) for file in files if is_licence(file.path)
        ],
    )
    document = json.dumps(manifest_document(manifest), indent=1, sort_keys=True)
    store.put(MANIFEST_NAME, document.encode())


def _licence_text(store: ObjectStore, path: str, sha256: str) -> LicenceText:
    content = store.read_small(path, most_bytes=_LICENCE_BYTES)
    return licence_text_of(path, content, sha256=sha256)
