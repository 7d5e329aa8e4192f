"""How the digest of a file stood at every 8 MiB of it, noted while the file was right.

A digest says that a file is damaged and not where. It is computed from the first byte to the last,
and how it stands on the way can be read off at no cost. Kept, these marks tell later which stretch
is the first that is wrong; with that stretch mended the next marks tell again. They prove nothing
themselves: a file counts as right by its whole digest alone.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from k31ctl.fetch.journal import MOST_STATE_BYTES, STATE_FOLDER, replace
from k31ctl.outside_json import parsed
from k31ctl.regular_file import read_regular

BLOCK_BYTES: Final = 8 * 2**20
_DIGITS: Final = 16  # of each mark
_FOLDER: Final = f"{STATE_FOLDER}/marks"
_SCHEMA: Final = "k31ctl/marks/v1"


class MarkedSha256:
    """SHA-256 that notes how it stands at every block."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._position = 0
        self.marks: list[str] = []

    def update(self, view: memoryview) -> None:
        """Take the next bytes."""
        while (room := BLOCK_BYTES - self._position % BLOCK_BYTES) <= len(view):
            self._sha256.update(view[:room])
            self._position += room
            self.marks.append(self._sha256.hexdigest()[:_DIGITS])
            view = view[room:]
        self._sha256.update(view)
        self._position += len(view)

    def hexdigest(self) -> str:
        """The digest of what was taken so far."""
        return self._sha256.hexdigest()

    def copy(self) -> "MarkedSha256":
        """The same state, to go on from in two ways."""
        made = MarkedSha256()
        made._sha256, made._position = self._sha256.copy(), self._position
        made.marks = list(self.marks)
        return made


def note_marks(folder: Path, path: str, digest: str, marks: Sequence[str]) -> None:
    """Keep the marks of a file that is right; a folder that cannot be written has none."""
    if not marks:
        return
    place = _place(folder, path)
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        state = {"schema": _SCHEMA, "path": path, "sha256": digest, "marks": list(marks)}
        replace(place, state, sync=False)


def noted_marks(folder: Path, path: str, digest: str) -> tuple[str, ...]:
    """Return the marks of the file with this digest, none where they are of another or lost."""
    try:
        found = parsed(read_regular(_place(folder, path), most_bytes=MOST_STATE_BYTES))
        if found["schema"] == _SCHEMA and (found["path"], found["sha256"]) == (path, digest):
            return tuple(str(mark) for mark in found["marks"])
    except (OSError, ValueError, TypeError, KeyError):
        pass
    return ()


def _place(folder: Path, path: str) -> Path:
    return folder / _FOLDER / f"{hashlib.sha256(path.encode()).hexdigest()[:32]}.json"
