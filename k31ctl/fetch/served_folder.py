"""What of a folder may be given to others: files of its commit that are proven and unchanged."""

import os
import threading
from pathlib import Path
from typing import Final

from k31ctl.errors import InputError
from k31ctl.fetch.hub import HubFile
from k31ctl.fetch.journal import STATE_FOLDER, Journal
from k31ctl.fetch.listing import Listing, read_listing
from k31ctl.fetch.manifest import MANIFEST_NAME
from k31ctl.fetch.proven import JOURNAL_NAME, ProvenFiles, stamp_of
from k31ctl.fetch.safe_path import is_safe
from k31ctl.regular_file import read_regular
from k31ctl.values import frozen

_STATES: Final = (
    f"{STATE_FOLDER}/journal.json",
    f"{STATE_FOLDER}/snapshot.json",
    JOURNAL_NAME,
    MANIFEST_NAME,
)
_MAX_BYTES: Final = 64 * 2**20


@frozen
class Counts:
    """How much of the commit can be given."""

    num_files: int
    num_proven: int
    bytes_total: int
    bytes_proven: int


@frozen
class _State:
    """What was read, and what the files looked like that it was read from."""

    marks: tuple[int, ...]
    listing: Listing
    journal: Journal
    verified: ProvenFiles


class ServedFolder:
    """A folder that is given to others, also while it is still being fetched."""

    def __init__(self, folder: Path) -> None:
        """Raise InputError for a folder that says nothing of its files."""
        self.folder = folder
        self._lock = threading.Lock()
        self._state = self._read(self._marks())

    @property
    def listing(self) -> Listing:
        """The commit and its files."""
        return self._current().listing

    @property
    def is_growing(self) -> bool:
        """Whether files are still on their way."""
        return (self.folder / STATE_FOLDER / "parts").is_dir()

    def counts(self) -> Counts:
        """Return how much can be given now."""
        state = self._current()
        proven = [f for f in state.listing.snapshot.files if _mtime_ns(state, f) is not None]
        return Counts(
            num_files=len(state.listing.snapshot.files),
            num_proven=len(proven),
            bytes_total=state.listing.snapshot.total_bytes,
            bytes_proven=sum(file.size_bytes for file in proven),
        )

    def file(self, path: str) -> HubFile | None:
        """Return the file of the commit with exactly this path."""
        files = self._current().listing.snapshot.files
        return next((file for file in files if file.path == path), None)

    def open(self, file: HubFile) -> int | None:
        """Return a handle of a proven file, None where it is not there, changed, or a link."""
        mtime_ns = _mtime_ns(self._current(), file)
        if mtime_ns is None or not is_safe(file.path):
            return None
        handle = _opened_beneath(self.folder, file.path)
        if handle is None:
            return None
        status = os.fstat(handle)
        if (status.st_size, status.st_mtime_ns) != (file.size_bytes, mtime_ns):
            os.close(handle)
            return None
        return handle

    def manifest(self) -> bytes | None:
        """Return the record beside the weights as it is."""
        try:
            return read_regular(self.folder / MANIFEST_NAME, most_bytes=_MAX_BYTES)
        except (OSError, ValueError):
            return None

    def _current(self) -> _State:
        marks = self._marks()
        with self._lock:
            if marks != self._state.marks:
                self._state = self._read(marks)
            return self._state

    def _marks(self) -> tuple[int, ...]:
        return tuple(_changed_at(self.folder / name) for name in _STATES)

    def _read(self, marks: tuple[int, ...]) -> _State:
        listing = read_listing(self.folder) if self.folder.is_dir() else None
        if listing is None:
            raise InputError(
                "nothing here says what the files must be",
                where=str(self.folder),
                remedy="name a folder that k31ctl fetch has filled, or is filling",
            )
        return _State(
            marks=marks,
            listing=listing,
            journal=Journal(self.folder),
            verified=ProvenFiles(self.folder, forget=False),
        )


def _mtime_ns(state: _State, file: HubFile) -> int | None:
    """Return the time of a file's last change where it is proven and unchanged."""
    proof = state.journal.standing_proof(file.path)
    if proof is not None and (
        (file.content_id and proof.content_id == file.content_id) or proof.sha256 == file.sha256
    ):
        return proof.mtime_ns
    stamp = stamp_of(state.journal.folder / file.path)
    digests = [digest for digest in (file.sha256, file.blob_id) if digest]
    if isinstance(stamp, str) or stamp.size_bytes != file.size_bytes:
        return None
    known = any(state.verified.knows(file.path, stamp, digest) for digest in digests)
    return stamp.mtime_ns if known else None


def _opened_beneath(folder: Path, path: str) -> int | None:
    """Open a file step by step, following no symbolic link below the folder."""
    *folders, name = path.split("/")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in folders:
            inner = os.open(part, flags | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
    except OSError:
        return None
    try:
        return os.open(name, flags, dir_fd=at)
    except OSError:
        return None
    finally:
        os.close(at)


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
