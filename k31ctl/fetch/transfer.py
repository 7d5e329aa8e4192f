"""One file in flight: who fetches which range, what is hashed, what is on the disk.

A single worker claims all that is left and hashes each piece as it comes. Once others join, ranges
are claimed in order in chunks; a worker keeps its chunk in memory until all before it is hashed,
so that SHA-256 runs over the file once and in order, and memory stays at one chunk for each worker.
"""

import os
import threading
from typing import Final

from k31ctl.errors import K31Error
from k31ctl.fetch.digest import Digest
from k31ctl.fetch.hub import HubFile
from k31ctl.fetch.journal import Journal, sync_folder
from k31ctl.fetch.own_places import make_folders, opened
from k31ctl.fetch.trouble import StoppedError

CHUNK_BYTES: Final = 8 * 1024 * 1024
_WORTH_JOINING: Final = 4 * CHUNK_BYTES
_LOOK_S: Final = 0.2


class Claim:
    """A range that one worker fetches; its end may come closer while it does."""

    __slots__ = ("end", "position", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end, self.position = start, end, start


class Transfer:
    """The state of one file in flight, shared by the workers that fetch it."""

    def __init__(self, file: HubFile, journal: Journal, stopped: threading.Event) -> None:
        self.file = file
        self._journal, self._stopped = journal, stopped
        self._turn = threading.Condition()
        self._digest = Digest(file)
        self._next = 0
        self._lead: Claim | None = None
        self._synced = 0
        self._handles: tuple[int, int] | None = None
        self._wrong: list[str] = []
        self.num_workers = 1
        self.frontier = 0
        self.bytes_reused = 0
        self.is_open = False
        self.error: K31Error | None = None

    @property
    def digest(self) -> Digest:
        """The digest of all bytes up to the frontier."""
        return self._digest

    @property
    def num_rounds(self) -> int:
        """How often the whole file was fetched and was wrong."""
        return len(self._wrong)

    def open(self) -> None:
        """Open the part and hash again what is already in it."""
        resumable = self._journal.resumable_bytes(self.file)
        path = self._journal.part_path(self.file)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = opened(path, os.O_RDWR | os.O_CREAT)
        try:
            state = opened(self._journal.state_path(self.file), os.O_RDWR | os.O_CREAT)
            self._handles = data, state
        except OSError:
            os.close(data)
            raise
        if resumable:
            self._digest.read(path, resumable, self._stopped)
        self.bytes_reused = self.frontier = self._next = self._synced = resumable
        self._note()
        self.is_open = True

    def is_worth_joining(self) -> bool:
        """Whether another worker would shorten the rest of this file."""
        with self._turn:
            return self.is_open and self.error is None and self._left() > _WORTH_JOINING

    def left(self) -> int:
        """Bytes that nobody is fetching, or that only the lead would come to later."""
        with self._turn:
            return self._left()

    def join(self) -> None:
        """Take part: the range of a single worker ends sooner."""
        with self._turn:
            self.num_workers += 1
            lead = self._lead
            if lead is not None and lead.end - lead.position > 2 * CHUNK_BYTES:
                lead.end = lead.position + CHUNK_BYTES
                self._next = lead.end

    def leave(self) -> None:
        """Take no further part; the last one closes the files of a failed transfer."""
        with self._turn:
            self.num_workers -= 1
            is_over = self.error is not None and self.num_workers == 0
        if is_over:
            self.close()

    def claim(self) -> Claim | None:
        """Return the next range to fetch, None where nothing is left."""
        with self._turn:
            if self.error is not None or self._next >= self.file.size_bytes:
                return None
            alone = self.num_workers == 1
            size = self.file.size_bytes
            end = size if alone else min(size, self._next + CHUNK_BYTES)
            claim = Claim(self._next, end)
            self._next = end
            if alone:
                self._lead = claim
            return claim

    def is_next(self, claim: Claim) -> bool:
        """Whether all before this range is hashed, so that its bytes can be as they come."""
        with self._turn:
            return self.frontier == claim.start

    def write(self, claim: Claim, view: memoryview) -> None:
        """Put the next bytes of a range on the disk."""
        if self._handles is None:
            raise self.error or StoppedError
        written = 0
        while written < len(view):
            written += os.pwrite(self._handles[0], view[written:], claim.position + written)
        with self._turn:
            claim.position += len(view)

    def wait_for_turn(self, claim: Claim) -> None:
        """Wait until all before this range is hashed."""
        with self._turn:
            while self.frontier != claim.start:
                if self._stopped.is_set():
                    raise StoppedError
                if self.error is not None:
                    raise self.error
                self._turn.wait(_LOOK_S)

    def take(self, view: memoryview) -> bool:
        """Hash the bytes at the frontier; returns whether they were the last."""
        self._digest.update(view)
        with self._turn:
            self.frontier += len(view)
            self._note()
            self._turn.notify_all()
            return self.frontier == self.file.size_bytes

    def start_over(self, *, other_source: bool = False) -> bool:
        """Forget wrong bytes; returns False where fetching again has not helped.

        The same wrong bytes twice come from the source and not from the way; different ones are
        worth a third attempt, and another source is always worth one.
        """
        with self._turn:
            found = self._digest.sha256
            hopeless = found in self._wrong or self.num_rounds + 1 >= 3  # noqa: PLR2004
            self._wrong.append(found)
            self._digest = Digest(self.file)
            self.frontier = self._synced = self._next = self.bytes_reused = 0
            self._lead = None
            self._note()
            return other_source or not hopeless

    def fail(self, error: K31Error) -> None:
        """End this file's work with a failure."""
        with self._turn:
            self.error = self.error or error
            self._turn.notify_all()

    def sync(self) -> None:
        """Have the disk confirm what is written up to now."""
        with self._turn:
            if self._handles is None or self._synced == self.frontier:
                return
            frontier, rounds = self.frontier, self.num_rounds
            handle = os.dup(self._handles[0])
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        with self._turn:
            if self._handles is not None and rounds == self.num_rounds:
                self._synced = frontier
                self._note()

    def place(self, *, sync: bool) -> str:
        """Put the proven file into its place, confirmed by the disk; returns its SHA-256.

        What another program may have written behind its end is cut off.
        """
        with self._turn:
            if self._handles is not None:
                os.ftruncate(self._handles[0], self.file.size_bytes)
        if sync:
            self.sync()
        self.close()
        path = make_folders(self._journal.folder, self.file.path)
        self._journal.part_path(self.file).replace(path)
        if sync:
            sync_folder(path.parent)
        self._journal.add(self.file, digest=self._digest.sha256, synced=sync)
        return self._digest.sha256

    def close(self) -> None:
        """Close the files; what is in them stays."""
        with self._turn:
            self.is_open = False
            handles, self._handles = self._handles, None
        for handle in handles or ():
            os.close(handle)

    def _left(self) -> int:
        lead = self._lead
        unread = lead.end - lead.position if lead is not None else 0
        return self.file.size_bytes - self._next + unread

    def _note(self) -> None:
        if self._handles is not None:
            state = self._journal.part_state(written=self.frontier, synced=self._synced)
            os.pwrite(self._handles[1], state, 0)
