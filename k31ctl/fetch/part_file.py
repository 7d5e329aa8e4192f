"""One file of a part while it is written: which chunks are in it, and its digest, in order."""

import os
import threading
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from k31ctl.fetch.marks import MarkedSha256
from k31ctl.fetch.part_layout import Chunk, PartFile

_PIECE_BYTES: Final = 1 << 20


class PartWriting:
    """The state of one file, shared by the threads that write it and the one that hashes it.

    Chunks come in any order. The digest runs over the file in its own order, as far as it is
    whole, over bytes that were written a moment ago: they come from memory, not from the disk.
    """

    def __init__(self, file: PartFile, chunks: Sequence[Chunk], folder: Path) -> None:
        self.file, self.path = file, folder / file.path
        self._chunks = tuple(chunks)
        self._lock = threading.Lock()
        self._done: set[int] = set()
        self._handle: int | None = None
        self._next = 0
        self._position = 0
        self._digest = MarkedSha256()
        self.bytes_read = self.bytes_kept = 0
        self.num_rounds = 0
        self.is_finished = False

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks of the file, in order."""
        return self._chunks

    @property
    def marks(self) -> Sequence[str]:
        """How the digest stood at every block of the file."""
        return self._digest.marks

    @property
    def read_bytes(self) -> int:
        """Bytes to read from the source for the file."""
        return sum(chunk.num_bytes for chunk in self._chunks)

    def write(self, position: int, content: memoryview) -> bytes:
        """Put what is written of source bytes into its place; returns it."""
        parts = list(self.file.cut(position, content))
        written = bytes(parts[0]) if len(parts) == 1 else b"".join(parts)
        place, done = self.file.place_of(position), 0
        handle = self._opened()
        while done < len(written):
            done += os.pwrite(handle, memoryview(written)[done:], place + done)
        with self._lock:
            self.bytes_read += len(content)
        return written

    def digest_of(self, chunk: Chunk) -> str | None:
        """The digest of a chunk as it is on the disk, None where the file is too short."""
        found, position = sha256(), chunk.first
        while position < chunk.last:
            piece = self._read(position, chunk.last)
            if not piece:
                return None
            found.update(piece)
            position += len(piece)
        return found.hexdigest()

    def content(self, first: int, last: int) -> bytes:
        """Bytes of the file as they are now; fewer where it ends."""
        parts = []
        while first < last and (piece := self._read(first, last)):
            parts.append(piece)
            first += len(piece)
        return b"".join(parts)

    def keep(self, chunk: Chunk) -> None:
        """Count a chunk that an earlier run has written."""
        with self._lock:
            self.bytes_read += chunk.num_bytes
            self.bytes_kept += chunk.num_bytes
        self.add(chunk)

    def drop(self, num_bytes: int) -> None:
        """Forget bytes of a chunk that did not come to its end."""
        with self._lock:
            self.bytes_read -= num_bytes

    def add(self, chunk: Chunk) -> None:
        """A chunk is in its place."""
        with self._lock:
            self._done.add(chunk.number)

    def advance(self) -> str | None:
        """Hash what has become whole; returns the digest of the file once it all is."""
        while self._next < len(self._chunks):
            chunk = self._chunks[self._next]
            with self._lock:
                if chunk.number not in self._done:
                    return None
            self._hash_up_to(chunk.last)
            self._next += 1
        self._hash_up_to(self.file.size_bytes)
        return self._digest.hexdigest()

    def start_over(self) -> int:
        """Forget everything that was read; returns the bytes of it that an earlier run read."""
        with self._lock:
            self._done.clear()
            forgotten, self.bytes_read, self.bytes_kept = self.bytes_kept, 0, 0
        self._next = self._position = 0
        self._digest = MarkedSha256()
        self.num_rounds += 1
        return forgotten

    def finish(self, *, sync: bool) -> None:
        """Give the file its length and have the disk confirm it."""
        handle = self._opened()
        os.ftruncate(handle, self.file.size_bytes)
        if sync:
            os.fsync(handle)
        self.close()
        self.is_finished = True

    def close(self) -> None:
        """Close the file; what is in it stays."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _opened(self) -> int:
        with self._lock:
            if self._handle is None:
                self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                os.pwrite(self._handle, self.file.head, 0)
            return self._handle

    def _read(self, position: int, end: int) -> bytes:
        return os.pread(self._opened(), min(_PIECE_BYTES, end - position), position)

    def _hash_up_to(self, end: int) -> None:
        while self._position < end:
            piece = self._read(self._position, end)
            if not piece:
                raise OSError(5, "a file that was written is shorter than it was", str(self.path))
            self._digest.update(memoryview(piece))
            self._position += len(piece)
