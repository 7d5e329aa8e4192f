"""The threads of a download: each takes a file, or a part of one, until nothing is left."""

import queue
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Final

from k31ctl.errors import EndpointError, K31Error, NotProvenError, RefusedError
from k31ctl.fetch.digest import Digest
from k31ctl.fetch.events import (
    Event,
    FileFailed,
    FileStarted,
    FileVerified,
    Mismatched,
    Paused,
    Retried,
)
from k31ctl.fetch.hub import Hub, HubFile, Snapshot
from k31ctl.fetch.journal import Journal
from k31ctl.fetch.marks import note_marks
from k31ctl.fetch.patience import Patience
from k31ctl.fetch.planning import FetchPlan, FilePlan, FileState
from k31ctl.fetch.threads import Threads
from k31ctl.fetch.throttle import LARGEST_PIECE, SMALLEST_PIECE, Throttle, next_piece_bytes
from k31ctl.fetch.transfer import CHUNK_BYTES, Claim, Transfer
from k31ctl.fetch.trouble import StoppedError, TransferError, disk_failure, unprovable

_LOOK_S: Final = 0.05
_SYNC_S: Final = 1.0
_JOIN_S: Final = 1.5
_GIVE_UP_S: Final = 10.0
_SMALL_BYTES: Final = 16 * 1024 * 1024


class Workers:
    """The work of one download and the threads that do it."""

    def __init__(
        self,
        hub: Hub,
        snapshot: Snapshot,
        plan: FetchPlan,
        journal: Journal,
        throttle: Throttle,
        *,
        sync: bool,
    ) -> None:
        self._hub, self._snapshot, self._journal = hub, snapshot, journal
        self._throttle, self._sync = throttle, sync
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending = deque(
            sorted(plan.files, key=lambda entry: entry.file.size_bytes > _SMALL_BYTES)
        )
        self._active: list[Transfer] = []
        self._to_finish: queue.SimpleQueue[Transfer | None] = queue.SimpleQueue()
        self._unfinished = 0
        self._verified: dict[str, str] = {}
        self._bytes_verified = 0
        self._threads = Threads(stop=hub.stop)
        self._background = Threads(stop=hub.stop)
        self._ended = threading.Event()
        self._last_bytes_at = time.monotonic()
        self._paused = False
        self.failed: list[FileFailed] = []
        self.failure: K31Error | None = None
        self.bytes_downloaded = self.bytes_reused = 0
        self.num_retries = self.num_refetched = 0
        hub.on_retry = self._retried

    def start(self, connections: int) -> None:
        """Start the threads."""
        self._threads.start([self._work] * connections, name="fetch")
        self._background.start(
            [self._finish_files, self._sync_parts, lambda: self._hub.cut_slow_until(self._ended)],
            name="fetch-background",
        )

    def is_running(self) -> bool:
        """Whether there is work that is not done."""
        with self._lock:
            waits = self._unfinished > 0 and not self._hub.stopped.is_set()
        return waits or self._threads.are_running()

    def stop(self) -> None:
        """End the threads; work that is not done stays as it is on the disk."""
        self._hub.stop()
        self._ended.set()
        self._to_finish.put(None)
        self._threads.join(timeout_s=_JOIN_S)
        self._background.join(timeout_s=_JOIN_S / 3)
        if not self._threads.are_running():
            for transfer in self._active:
                transfer.close()

    def raise_unforeseen(self) -> None:
        """Raise what ended a thread, if it is a fault of this program."""
        self._threads.raise_unforeseen()
        self._background.raise_unforeseen()

    def verified(self) -> dict[str, str]:
        """Return the SHA-256 of every file that is here and proven."""
        with self._lock:
            return dict(self._verified)

    def bytes_done(self) -> int:
        """Bytes that are proven, or on the way to be."""
        with self._lock:
            return self._bytes_verified + sum(transfer.frontier for transfer in self._active)

    def in_flight(self) -> tuple[tuple[str, int, int], ...]:
        """Return path, bytes and size of the files in flight."""
        with self._lock:
            return tuple((t.file.path, t.frontier, t.file.size_bytes) for t in self._active)

    def _work(self) -> None:
        while not self._hub.stopped.is_set():
            entry, transfer = self._next()
            if entry is not None:
                self._take_file(entry)
            elif transfer is not None:
                self._take_part(transfer)
            elif self._is_idle():
                return
            else:
                self._hub.stopped.wait(_LOOK_S)

    def _next(self) -> tuple[FilePlan | None, Transfer | None]:
        """Return a file that nobody has begun, or the one in flight with the most left."""
        with self._lock:
            if self._pending:
                self._unfinished += 1
                return self._pending.popleft(), None
            if not self._hub.supports_ranges:
                return None, None
            worth = [transfer for transfer in self._active if transfer.is_worth_joining()]
            if not worth:
                return None, None
            found = max(worth, key=lambda t: t.left() // t.num_workers)
            found.join()
            return None, found

    def _is_idle(self) -> bool:
        with self._lock:
            return not self._pending and not self._unfinished

    def _take_file(self, entry: FilePlan) -> None:
        file, path = entry.file, self._journal.folder / entry.file.path
        try:
            if entry.state in (FileState.PROVEN, FileState.PRESENT) and self._is_kept(entry):
                return
            if not Digest(file).is_provable:
                self._failed(
                    file.path,
                    unprovable(file.path, where=f"{self._snapshot.endpoint}/{self._snapshot.repo}"),
                )
                return
            transfer = Transfer(file, self._journal, self._hub.stopped)
            with self._lock:
                self._active.append(transfer)
            transfer.open()
        except OSError as error:
            self._disk_failed(error, path=str(path))
            return
        with self._lock:
            self.bytes_reused += transfer.bytes_reused
        self._tell_started(entry, transfer.bytes_reused, is_check=False)
        if transfer.frontier == file.size_bytes:
            self._complete(transfer)
        self._take_part(transfer)

    def _is_kept(self, entry: FilePlan) -> bool:
        """Whether a file in its place is right: by its proof, or else by reading it."""
        file, path = entry.file, self._journal.folder / entry.file.path
        proof = self._journal.proof(file)
        if proof is not None:
            self._is_here(file, proof.sha256, fetched=None)
            return True
        digest = Digest(file)
        if not digest.is_provable:
            return False
        self._tell_started(entry, 0, is_check=True)
        try:
            digest.read(path, file.size_bytes, self._hub.stopped)
        except EOFError:
            return False
        if not digest.is_right:
            self.events.put(
                Mismatched(path=file.path, reason="what was in the folder is not what is published")
            )
            return False
        self._journal.add(file, digest=digest.sha256, synced=False)
        note_marks(self._journal.folder, file.path, digest.sha256, digest.marks)
        self._is_here(file, digest.sha256, fetched=None)
        return True

    def _is_here(self, file: HubFile, digest: str, *, fetched: Transfer | None) -> None:
        """Count a file that is in its place and noted."""
        reused = fetched is None
        self._journal.drop_part(file)
        self.events.put(
            FileVerified(path=file.path, size_bytes=file.size_bytes, sha256=digest, reused=reused)
        )
        with self._lock:
            if fetched is not None:
                self._active.remove(fetched)
            self.bytes_reused += file.size_bytes if reused else 0
            self._bytes_verified += file.size_bytes
            self._last_bytes_at = time.monotonic()
            self._verified[file.path] = digest
            self._unfinished -= 1

    def _tell_started(self, entry: FilePlan, bytes_reused: int, *, is_check: bool) -> None:
        self.events.put(
            FileStarted(
                path=entry.file.path,
                size_bytes=entry.file.size_bytes,
                bytes_reused=bytes_reused,
                is_check=is_check,
            )
        )

    def _take_part(self, transfer: Transfer) -> None:
        """Fetch ranges of a file until none is left."""
        try:
            while (claim := transfer.claim()) is not None:
                self._fetch(transfer, claim)
        except K31Error as error:
            self._give_up(transfer, error)
        except OSError as error:
            transfer.fail(disk_failure(error, where=transfer.file.path))
            self._disk_failed(error, path=transfer.file.path)
        finally:
            transfer.leave()

    def _fetch(self, transfer: Transfer, claim: Claim) -> None:
        """Fetch one range, asking again as often as patience allows."""
        patience = self._hub.patience(transfer.file.path)
        in_order = transfer.is_next(claim)
        size = LARGEST_PIECE if in_order else min(CHUNK_BYTES, claim.end - claim.start)
        buffer = memoryview(bytearray(size))
        while claim.position < claim.end:
            self._wait_for_hours()
            try:
                self._read(transfer, claim, patience, buffer, in_order=in_order)
            except TransferError as error:
                patience.failed(error)
        if not in_order:
            transfer.wait_for_turn(claim)
            if transfer.take(buffer[: claim.end - claim.start]):
                self._complete(transfer)

    def _read(
        self,
        transfer: Transfer,
        claim: Claim,
        patience: Patience,
        buffer: memoryview,
        *,
        in_order: bool,
    ) -> None:
        piece = SMALLEST_PIECE
        attempt = patience.num_failures + transfer.num_rounds
        with self._hub.open_range(
            self._snapshot, transfer.file, claim.position, claim.end, attempt=attempt
        ) as body:
            while (left := claim.end - claim.position) > 0:
                offset = 0 if in_order else claim.position - claim.start
                num_bytes = min(left, self._throttle.piece_bytes(piece))
                begun = time.monotonic()
                count = body.readinto(buffer[offset : offset + num_bytes])
                if count == 0:
                    return
                piece = next_piece_bytes(piece, seconds=time.monotonic() - begun)
                view = buffer[offset : offset + count]
                self._arrived(count)
                transfer.write(claim, view)
                patience.progressed()
                if in_order and transfer.take(view):
                    self._complete(transfer)
                    return
                if transfer.error is not None:
                    raise transfer.error
                self._throttle.spend(count)
                if self._throttle.closed_s():
                    return

    def _arrived(self, count: int) -> None:
        with self._lock:
            self.bytes_downloaded += count
            self._last_bytes_at = time.monotonic()

    def _wait_for_hours(self) -> None:
        while (wait_s := self._throttle.closed_s()) > 0:
            with self._lock:
                first, self._paused = not self._paused, True
            if first:
                self.events.put(Paused(wait_s=wait_s))
            if self._hub.stopped.wait(min(wait_s, 1.0)):
                raise StoppedError
        with self._lock:
            if self._paused:
                self._paused, self._last_bytes_at = False, time.monotonic()

    def _complete(self, transfer: Transfer) -> None:
        """Prove a file of which all bytes are here, or fetch it again."""
        if transfer.digest.is_right:
            self._to_finish.put(transfer)
            return
        path = transfer.file.path
        sources = ", ".join(self._hub.origins.of(path)) or "the folder"
        self.events.put(
            Mismatched(path=path, reason=f"its SHA-256 is not the published one (from {sources})")
        )
        other_source = self._hub.wrong_bytes(transfer.file)
        with self._lock:
            self.bytes_reused -= transfer.bytes_reused
        if transfer.start_over(other_source=other_source):
            with self._lock:
                self.num_refetched += 1
            return
        raise NotProvenError(
            f"{path} arrives with a wrong digest every time",
            where=f"{self._snapshot.repo} at {self._snapshot.commit[:12]}",
            remedy="name another --endpoint; what arrived was not kept",
        )

    def _finish_files(self) -> None:
        """Put proven files into their places, once the disk has confirmed them."""
        while (transfer := self._to_finish.get()) is not None:
            try:
                digest = transfer.place(sync=self._sync)
                marks = transfer.digest.marks
                note_marks(self._journal.folder, transfer.file.path, digest, marks)
                self._is_here(transfer.file, digest, fetched=transfer)
                if self._to_finish.empty():
                    self._journal.save()
            except OSError as error:
                self._disk_failed(error, path=transfer.file.path)
        with suppress(OSError):  # what is not written down is read again
            self._journal.save()

    def _sync_parts(self) -> None:
        """Have the disk confirm parts as they grow, so that the last wait is short."""
        while self._sync and not self._ended.wait(_SYNC_S):
            with self._lock:
                active = list(self._active)
            for transfer in active:
                try:
                    transfer.sync()
                except OSError as error:
                    self._disk_failed(error, path=transfer.file.path)

    def _retried(self, path: str, reason: str, wait_s: float) -> None:
        with self._lock:
            self.num_retries += 1
        self.events.put(Retried(path=path, reason=reason, wait_s=wait_s))

    def _give_up(self, transfer: Transfer, error: K31Error) -> None:
        """End a file in failure; the whole where the others would fail as well."""
        with self._lock:
            if transfer.error is not None or transfer not in self._active:
                return
            transfer.fail(error)
            self._active.remove(transfer)
            silent_s = time.monotonic() - self._last_bytes_at
        if isinstance(error, NotProvenError):
            self._journal.drop_part(transfer.file)
        self._failed(transfer.file.path, error)
        silent = isinstance(error, EndpointError) and silent_s > _GIVE_UP_S
        if silent or isinstance(error, RefusedError):
            self._hub.stop()

    def _failed(self, path: str, error: K31Error) -> None:
        told = FileFailed(path=path, what=error.what, remedy=error.remedy)
        with self._lock:
            self.failed.append(told)
            worse = isinstance(error, NotProvenError) and not isinstance(
                self.failure, NotProvenError
            )
            if self.failure is None or worse:
                self.failure = error
            self._unfinished -= 1
        self.events.put(told)

    def _disk_failed(self, error: OSError, *, path: str) -> None:
        """End the whole: the next file would meet the same disk."""
        self._hub.stop()
        with self._lock:
            first = not isinstance(self.failure, RefusedError)
            self.failure = disk_failure(error, where=path) if first else self.failure
            self._unfinished = 0
            self._pending.clear()
