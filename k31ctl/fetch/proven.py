"""Which files were read whole and found to be right, so that a second run need not read them."""

import contextlib
import json
import os
import stat
import time
from pathlib import Path
from typing import Any, Final

from k31ctl.fetch.journal import MOST_STATE_BYTES, STATE_FOLDER
from k31ctl.outside_json import parsed
from k31ctl.regular_file import read_regular
from k31ctl.values import frozen

JOURNAL_NAME: Final = f"{STATE_FOLDER}/verify.json"
_SCHEMA: Final = "k31ctl/verify-journal/v1"
_SAVE_EVERY_S: Final = 2.0
VALUES_RULES: Final = "rules 2"  # of what is told of values; another number forgets what was told


@frozen
class Stamp:
    """What changes when a file is written: a rotten disk changes none of it (``--again``)."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def stamp_of(path: Path) -> Stamp | str:
    """The stamp of a file, or why there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        return "is missing" if missing else f"cannot be read: {getattr(error, 'strerror', error)}"
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    return Stamp(
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        inode=status.st_ino,
    )


class ProvenFiles:
    """The journal of a folder: read at the start, replaced whole every few seconds.

    A folder that cannot be written simply has no journal; ``is_kept`` then says so.
    """

    def __init__(self, folder: Path, *, forget: bool) -> None:
        self._path = folder / JOURNAL_NAME
        raw = {} if forget else _read(self._path)
        self._files: dict[str, list[Any]] = _lists(raw.get("files"))
        self._values: dict[str, list[Any]] = _lists(raw.get("values"))
        self._saved_s = time.monotonic()
        self.is_kept = True

    def knows(self, path: str, stamp: Stamp, digest: str) -> bool:
        """Whether the same file was found to have the same digest."""
        return self._files.get(path) == _entry(stamp, digest)

    def values_of(self, path: str, stamp: Stamp) -> list[Any] | None:
        """What reading the values of the same file has told, None where nothing is known."""
        found = self._values.get(path)
        if found is None or found[:1] != [_entry(stamp, VALUES_RULES)]:
            return None
        return found[1:]

    def add_values(self, path: str, stamp: Stamp, told: list[Any]) -> None:
        """Note what the values of a file tell, and save now and then."""
        self._values[path] = [_entry(stamp, VALUES_RULES), *told]
        self._save_sometimes()

    def add(self, path: str, stamp: Stamp, digest: str) -> None:
        """Note a proven file, and save now and then."""
        self._files[path] = _entry(stamp, digest)
        self._save_sometimes()

    def _save_sometimes(self) -> None:
        if time.monotonic() - self._saved_s > _SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Replace the journal whole."""
        self._saved_s = time.monotonic()
        if not self._files and not self._values:
            return
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(exist_ok=True)
            state = {"schema": _SCHEMA, "files": self._files, "values": self._values}
            temporary.write_text(json.dumps(state))
            temporary.replace(self._path)
        except OSError:
            self.is_kept = False
            with contextlib.suppress(OSError):
                temporary.unlink()


def _entry(stamp: Stamp, digest: str) -> list[Any]:
    return [stamp.size_bytes, stamp.mtime_ns, stamp.ctime_ns, stamp.inode, digest]


def _read(path: Path) -> dict[str, Any]:
    """What a journal holds; one that cannot be read is as good as none."""
    try:
        document = parsed(read_regular(path, most_bytes=MOST_STATE_BYTES))
        if document["schema"] == _SCHEMA:
            return dict(document)
    except (OSError, ValueError, TypeError, KeyError):
        pass
    return {}


def _lists(raw: object) -> dict[str, list[Any]]:
    if not isinstance(raw, dict):
        return {}
    return {path: entry for path, entry in raw.items() if isinstance(entry, list)}
