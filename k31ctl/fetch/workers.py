"""The threads of a download: each takes a file, or a part of one, until nothing is left."""

import os
import queue
import threading
import time
from collections import deque
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
from k31ctl.fetch.hub import Hub, Patience, Snapshot
from k31ctl.fetch.journal import Journal, sync_folder
from k31ctl.fetch.planning import FetchPlan, FilePlan, FileState
from k31ctl.fetch.throttle import Throttle
from k31ctl.fetch.transfer import CHUNK_BYTES, Claim, Transfer
from k31ctl.fetch.trouble import StoppedError, TransferError, disk_failure, unprovable

_PIECE_BYTES: Final = 1024 * 1024
_SMALLEST_PIECE: Final = 32 * 1024
_FAST_S, _SLOW_S = 0.05, 0.5
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
        self._threads: list[threading.Thread] = []
        self._background: list[threading.Thread] = []
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
        self._threads = [
            threading.Thread(target=self._work, name=f"fetch-{number}", daemon=True)
            for number in range(connections)
        ]
        self._background = [
            threading.Thread(target=self._finish_files, name="fetch-finish", daemon=True),
            threading.Thread(target=self._sync_parts, name="fetch-sync", daemon=True),
        ]
        for thread in (*self._threads, *self._background):
            thread.start()

    def is_running(self) -> bool:
        """Whether there is work that is not done."""
        with self._lock:
            waits = self._unfinished > 0 and not self._hub.stopped.is_set()
        return waits or any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """End the threads; work that is not done stays as it is on the disk."""
        self._hub.stop()
        self._ended.set()
        self._to_finish.put(None)
        deadline = time.monotonic() + _JOIN_S
        for thread in (*self._threads, *self._background):
            thread.join(max(0.0, deadline - time.monotonic()))
        if not any(thread.is_alive() for thread in self._threads):
            for transfer in self._active:
                transfer.close()

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
        try:
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
        except StoppedError:
            return

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
            self._is_here(entry, proof.sha256)
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
        self._is_here(entry, digest.sha256)
        return True

    def _is_here(self, entry: FilePlan, digest: str) -> None:
        file = entry.file
        self._journal.drop_part(file)
        with self._lock:
            self.bytes_reused += file.size_bytes
            self._bytes_verified += file.size_bytes
            self._verified[file.path] = digest
            self._unfinished -= 1
        self.events.put(
            FileVerified(path=file.path, size_bytes=file.size_bytes, sha256=digest, reused=True)
        )

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
        size = _PIECE_BYTES if in_order else min(CHUNK_BYTES, claim.end - claim.start)
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
        piece = _SMALLEST_PIECE
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
                piece = _next_piece(piece, time.monotonic() - begun)
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
            self._paused = False

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
                self._finish(transfer)
            except OSError as error:
                self._disk_failed(error, path=transfer.file.path)

    def _finish(self, transfer: Transfer) -> None:
        file = transfer.file
        if self._sync:
            transfer.sync()
        transfer.close()
        path = self._journal.folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._journal.part_path(file), path)  # noqa: PTH105
        if self._sync:
            sync_folder(path.parent)
        digest = transfer.digest.sha256
        self._journal.add(file, digest=digest, synced=self._sync)
        self._journal.drop_part(file)
        with self._lock:
            self._active.remove(transfer)
            self._bytes_verified += file.size_bytes
            self._verified[file.path] = digest
            self._unfinished -= 1
        self.events.put(
            FileVerified(path=file.path, size_bytes=file.size_bytes, sha256=digest, reused=False)
        )

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


def _next_piece(piece: int, seconds: float) -> int:
    """Return how much to read at once: large where bytes are quick, small where they are slow."""
    if seconds < _FAST_S:
        return min(2 * piece, _PIECE_BYTES)
    return max(piece // 2, _SMALLEST_PIECE) if seconds > _SLOW_S else piece
