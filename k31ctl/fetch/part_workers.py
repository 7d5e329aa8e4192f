"""The threads that fetch a part: each takes neighbouring chunks of a file until none is left."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from typing import Final

from k31ctl.errors import K31Error, NotProvenError
from k31ctl.fetch.events import Event, FileFailed, FileVerified, Mismatched, Paused, Retried
from k31ctl.fetch.part_file import PartWriting
from k31ctl.fetch.part_layout import MOST_CHUNKS, Chunk, PartLayout
from k31ctl.fetch.part_notes import PartNotes
from k31ctl.fetch.source import Source
from k31ctl.fetch.threads import Threads
from k31ctl.fetch.throttle import Throttle
from k31ctl.fetch.trouble import StoppedError, disk_failure

_MOST_ROUNDS: Final = 3
_LOOK_S: Final = 0.05
_JOIN_S: Final = 1.5


class PartWorkers:
    """The work of one part and the threads that do it; it is whole or it has failed."""

    def __init__(
        self,
        source: Source,
        layout: PartLayout,
        notes: PartNotes,
        throttle: Throttle,
        *,
        stopped: threading.Event,
        stop: Callable[[], None],
        sync: bool,
        digests: Mapping[str, str],
    ) -> None:
        """``digests`` are what is published of files; ``stop`` ends what sets ``stopped``."""
        self._source, self._layout, self._notes = source, layout, notes
        self._throttle, self._stopped, self._stop, self._sync = throttle, stopped, stop, sync
        self._digests = digests
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._noted = notes.noted()
        self._pending = deque(layout.chunks)
        held: list[list[Chunk]] = [[] for _ in layout.files]
        for chunk in layout.chunks:
            held[chunk.file].append(chunk)
        self._files = [
            PartWriting(file, chunks, notes.unfinished)
            for file, chunks in zip(layout.files, held, strict=True)
        ]
        self._left = len(self._files)
        self._to_hash: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._threads = Threads(stop=self._end)
        self._paused = False
        self.failure: K31Error | None = None
        self.failed: list[FileFailed] = []
        self.verified: dict[str, str] = {}
        self.marks: dict[str, Sequence[str]] = {}
        self.bytes_downloaded = self.bytes_reused = 0
        self.num_retries = self.num_refetched = 0

    def start(self, connections: int) -> None:
        """Start the threads."""
        for number in range(len(self._files)):  # a file may have nothing but its header
            self._to_hash.put(number)
        self._threads.start([self._work] * connections + [self._hash], name="part")

    def is_running(self) -> bool:
        """Whether there is work that is not done."""
        return self._threads.are_running()

    def raise_unforeseen(self) -> None:
        """Raise what ended a thread, if it was nothing that the work knows of."""
        self._threads.raise_unforeseen()

    def stop(self) -> None:
        """End the threads; what is written stays."""
        self._end()
        self._threads.join(timeout_s=_JOIN_S)
        if not self.is_running():
            for file in self._files:
                file.close()

    def bytes_done(self) -> int:
        """Bytes of the source that are written."""
        return sum(file.bytes_read for file in self._files)

    def in_flight(self) -> tuple[tuple[str, int, int], ...]:
        """Return path, bytes and size of the files in flight, counted in bytes to read."""
        return tuple(
            (file.file.path, file.bytes_read, file.read_bytes)
            for file in self._files
            if file.bytes_read and not file.is_finished
        )

    def retried(self, path: str, reason: str, wait_s: float) -> None:
        """Tell that something is asked for again."""
        with self._lock:
            self.num_retries += 1
        self.events.put(Retried(path=path, reason=reason, wait_s=wait_s))

    def _end(self) -> None:
        self._stop()
        self._stopped.set()
        self._to_hash.put(None)

    def _work(self) -> None:
        try:
            while not self._stopped.is_set():
                claim = self._next()
                if claim:
                    self._take(claim)
                elif self._left == 0:
                    return
                else:
                    self._stopped.wait(_LOOK_S)
        except OSError as error:
            self._fail(disk_failure(error, where=str(self._notes.folder)), "")

    def _next(self) -> list[Chunk]:
        """Return neighbours to fetch in one request, or one chunk that has to be checked."""
        with self._lock:
            claim: list[Chunk] = []
            while self._pending and len(claim) < MOST_CHUNKS:
                chunk = self._pending[0]
                is_noted = chunk.number in self._noted
                if claim and (
                    is_noted or (chunk.file, chunk.start) != (claim[-1].file, claim[-1].end)
                ):
                    break
                claim.append(self._pending.popleft())
                if is_noted:
                    break
            return claim

    def _take(self, claim: Sequence[Chunk]) -> None:
        path = self._layout.files[claim[0].file].path
        noted = self._noted.pop(claim[0].number, None)
        if noted is not None:
            self._check(claim[0], noted)
            return
        try:
            self._fetch(claim)
        except K31Error as error:
            self._fail(error, path)

    def _check(self, chunk: Chunk, noted: str) -> None:
        """Keep a chunk of an earlier run where the disk still has it."""
        file = self._files[chunk.file]
        if file.digest_of(chunk) != noted:
            with self._lock:
                self._pending.append(chunk)
            return
        file.keep(chunk)
        with self._lock:
            self.bytes_reused += chunk.num_bytes
        self._to_hash.put(chunk.file)

    def _fetch(self, claim: Sequence[Chunk]) -> None:
        file, waiting = self._files[claim[0].file], deque(claim)
        position, found, in_chunk = claim[0].start, sha256(), 0
        try:
            for piece in self._pieces(file.file.path, position, claim[-1].end):
                content = memoryview(piece)
                while content:
                    chunk = waiting[0]
                    part = content[: chunk.end - position]
                    content = content[len(part) :]
                    found.update(file.write(position, part))
                    position, in_chunk = position + len(part), in_chunk + len(part)
                    if position == chunk.end:
                        self._notes.note(chunk.number, found.hexdigest())
                        file.add(waiting.popleft())
                        self._to_hash.put(chunk.file)
                        found, in_chunk = sha256(), 0
        finally:
            file.drop(in_chunk)

    def _pieces(self, path: str, start: int, end: int) -> Iterator[bytes]:
        """Yield source bytes at the rate and in the hours that are given."""
        while start < end:
            self._wait_for_hours()
            with closing(self._source.chunks(path, start, end)) as pieces:
                for piece in pieces:
                    start += len(piece)
                    with self._lock:
                        self.bytes_downloaded += len(piece)
                    yield piece
                    self._throttle.spend(len(piece))
                    if self._stopped.is_set():
                        raise StoppedError
                    if self._throttle.closed_s():
                        break

    def _wait_for_hours(self) -> None:
        while (wait_s := self._throttle.closed_s()) > 0:
            with self._lock:
                first, self._paused = not self._paused, True
            if first:
                self.events.put(Paused(wait_s=wait_s))
            if self._stopped.wait(min(wait_s, 1.0)):
                raise StoppedError
        with self._lock:
            self._paused = False

    def _hash(self) -> None:
        """Follow the writing with each file's digest, and finish the files that are whole."""
        try:
            while self._left and (number := self._to_hash.get()) is not None:
                file = self._files[number]
                digest = None if file.is_finished else file.advance()
                if digest is not None:
                    self._finish(file, digest)
        except OSError as error:
            self._fail(disk_failure(error, where=str(self._notes.folder)), "")
        except K31Error as error:
            self._fail(error, "")

    def _finish(self, file: PartWriting, digest: str) -> None:
        expected = self._digests.get(file.file.path)
        if expected is not None and digest != expected:
            self._again(file)
            return
        file.finish(sync=self._sync)
        path = file.file.path
        with self._lock:
            self.verified[path], self.marks[path] = digest, file.marks
            self._left -= 1
        told = FileVerified(
            path=path,
            size_bytes=file.file.size_bytes,
            sha256=digest,
            reused=False,
            is_published=expected is not None,
        )
        self.events.put(told)

    def _again(self, file: PartWriting) -> None:
        """Fetch a file anew whose digest is not the published one."""
        path = file.file.path
        self.events.put(Mismatched(path=path, reason="its SHA-256 is not the published one"))
        with self._lock:
            self.bytes_reused -= file.start_over()
        for chunk in file.chunks:
            self._notes.forget(chunk.number)
        if file.num_rounds >= _MOST_ROUNDS:
            raise NotProvenError(
                f"{path} arrives with a wrong digest every time",
                where=self._source.label,
                remedy="name another --endpoint; what arrived was not kept",
            )
        with self._lock:
            self.num_refetched += 1
            self._pending.extend(file.chunks)

    def _fail(self, error: K31Error, path: str) -> None:
        """End the whole: a part is only of use with all of its files."""
        told = FileFailed(path=path, what=error.what, remedy=error.remedy)
        with self._lock:
            first = self.failure is None
            self.failure = self.failure or error
        if first:
            self.failed.append(told)
            self.events.put(told)
        self._end()
