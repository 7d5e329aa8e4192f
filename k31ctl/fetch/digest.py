"""Proof of a file's bytes while they pass: SHA-256, and git's own where that is what is known."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Final

from k31ctl.fetch.hub import HubFile
from k31ctl.fetch.marks import MarkedSha256
from k31ctl.fetch.trouble import StoppedError

_READ_BYTES: Final = 1024 * 1024
_SHA1_LENGTH: Final = 40


class Digest:
    """The digests of a file, fed in order.

    A hub publishes the SHA-256 of large files. For the others it names the git blob, which is the
    SHA-1 of ``blob SIZE``, a zero byte and the content (git's book, chapter 10.2).
    """

    def __init__(self, file: HubFile) -> None:
        self._file = file
        self._sha256 = MarkedSha256()
        self._blob = None if file.sha256 else hashlib.sha1(usedforsecurity=False)
        if self._blob is not None:
            self._blob.update(b"blob %d\0" % file.size_bytes)

    def update(self, view: memoryview) -> None:
        """Take the next bytes."""
        self._sha256.update(view)
        if self._blob is not None:
            self._blob.update(view)

    def read(self, path: Path, num_bytes: int, stopped: Event) -> None:
        """Take the first bytes of a file on disk; raises StoppedError, or EOFError if too short."""
        buffer = memoryview(bytearray(_READ_BYTES))
        with path.open("rb", buffering=0) as file:
            while num_bytes:
                if stopped.is_set():
                    raise StoppedError
                count = file.readinto(buffer[: min(num_bytes, _READ_BYTES)])
                if not count:
                    raise EOFError(path)
                self.update(buffer[:count])
                num_bytes -= count

    @property
    def sha256(self) -> str:
        """SHA-256 of what was taken so far."""
        return self._sha256.hexdigest()

    @property
    def marks(self) -> Sequence[str]:
        """How the SHA-256 stood at every block of what was taken so far."""
        return self._sha256.marks

    @property
    def is_provable(self) -> bool:
        """Whether the hub says what the content must be."""
        return bool(self._file.sha256) or len(self._file.blob_id or "") == _SHA1_LENGTH

    @property
    def is_right(self) -> bool:
        """Whether what was taken is what was published."""
        if self._file.sha256:
            return self.sha256 == self._file.sha256
        return self._blob is not None and self._blob.hexdigest() == self._file.blob_id
