"""What is to be fetched, what of it is already here, and whether the target can take the rest."""

from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISREG

from k31ctl.errors import InputError
from k31ctl.fetch.hub import HubFile, Snapshot
from k31ctl.fetch.journal import Journal
from k31ctl.fetch.partial_marker import MARKER_NAME, is_marker
from k31ctl.fetch.space import Space
from k31ctl.values import frozen


class FileState(StrEnum):
    """How much of a file is here."""

    PROVEN = "proven"
    PRESENT = "present"
    PARTIAL = "partial"
    MISSING = "missing"


@frozen
class FilePlan:
    """One file, and how many of its bytes are here."""

    file: HubFile
    state: FileState
    bytes_here: int

    @property
    def bytes_to_get(self) -> int:
        """Bytes that must be downloaded, if those that are here turn out right."""
        return self.file.size_bytes - self.bytes_here


@frozen
class FetchPlan:
    """What will be done, before the first byte.

    ``target`` is a prefix in object storage, empty for a folder; a store tells no ``space``.
    """

    snapshot: Snapshot
    revision: str
    folder: Path
    files: tuple[FilePlan, ...]
    space: Space | None
    rate_bytes_per_s: float | None
    rate_source: str
    target: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the sources and of what they hold."""
        if not any(is_marker(file.path) for file in self.snapshot.files):
            return self.snapshot.notes
        part = f"the repository says of itself that it is a part of a checkpoint ({MARKER_NAME})"
        return (*self.snapshot.notes, part)

    @property
    def bytes_total(self) -> int:
        """Size of all files, in bytes."""
        return sum(entry.file.size_bytes for entry in self.files)

    @property
    def bytes_to_get(self) -> int:
        """Bytes that must be downloaded."""
        return sum(entry.bytes_to_get for entry in self.files)

    @property
    def eta_s(self) -> float | None:
        """Expected seconds of the download, None where no rate is known."""
        rate = self.rate_bytes_per_s
        return self.bytes_to_get / rate if rate else None

    def bytes_in(self, state: FileState) -> int:
        """Bytes that are here in files of one state."""
        return sum(entry.bytes_here for entry in self.files if entry.state is state)

    def num_in(self, state: FileState) -> int:
        """Number of files of one state."""
        return sum(entry.state is state for entry in self.files)


def chosen_files(
    snapshot: Snapshot, *, include: tuple[str, ...], exclude: tuple[str, ...]
) -> tuple[HubFile, ...]:
    """Return the files whose path matches; raises InputError where none does.

    The mark of a part always comes along: without it the part would pass as a whole.
    """
    found = tuple(
        file
        for file in snapshot.files
        if (not include or any(_matches(file.path, pattern) for pattern in include))
        and not any(_matches(file.path, pattern) for pattern in exclude)
    )
    if not found:
        raise InputError(
            f"none of the {len(snapshot.files)} files is chosen",
            where=f"{snapshot.repo} at {snapshot.commit[:12]}",
            remedy="change --include or --exclude, such as --include '*.safetensors'",
        )
    mark = tuple(file for file in snapshot.files if is_marker(file.path) and file not in found)
    return found + mark


def file_plan(file: HubFile, journal: Journal) -> FilePlan:
    """Return how much of a file is here."""
    if journal.proof(file) is not None:
        return FilePlan(file=file, state=FileState.PROVEN, bytes_here=file.size_bytes)
    if _size_bytes(journal.folder / file.path) == file.size_bytes:
        return FilePlan(file=file, state=FileState.PRESENT, bytes_here=file.size_bytes)
    resumable = journal.resumable_bytes(file)
    state = FileState.PARTIAL if resumable else FileState.MISSING
    return FilePlan(file=file, state=state, bytes_here=resumable)


def _size_bytes(path: Path) -> int | None:
    """Return the size of a file, None where there is none or where it cannot be had."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size if S_ISREG(found.st_mode) else None


def _matches(path: str, pattern: str) -> bool:
    """Match as huggingface_hub does: ``*`` also crosses folders, ``folder/`` means all in it."""
    return fnmatchcase(path, pattern + "*" if pattern.endswith("/") else pattern)
