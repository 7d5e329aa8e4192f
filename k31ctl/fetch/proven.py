"""Which files were read whole and found to be right, so that a second run need not read them."""

import contextlib
import json
import os
import stat
import time
from pathlib import Path
from typing import Any, Final

from k31ctl.fetch.journal import STATE_FOLDER
from k31ctl.values import frozen

JOURNAL_NAME: Final = f"{STATE_FOLDER}/verify.json"
_SCHEMA: Final = "k31ctl/verify-journal/v1"
_SAVE_EVERY_S: Final = 2.0


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
        self._files: dict[str, list[Any]] = {} if forget else _read(self._path)
        self._saved_s = time.monotonic()
        self.is_kept = True

    def knows(self, path: str, stamp: Stamp, digest: str) -> bool:
        """Whether the same file was found to have the same digest."""
        return self._files.get(path) == _entry(stamp, digest)

    def add(self, path: str, stamp: Stamp, digest: str) -> None:
        """Note a proven file, and save now and then."""
        self._files[path] = _entry(stamp, digest)
        if time.monotonic() - self._saved_s > _SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Replace the journal whole."""
        self._saved_s = time.monotonic()
        if not self._files:
            return
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps({"schema": _SCHEMA, "files": self._files}))
            temporary.replace(self._path)
        except OSError:
            self.is_kept = False
            with contextlib.suppress(OSError):
                temporary.unlink()


def _entry(stamp: Stamp, digest: str) -> list[Any]:
    return [stamp.size_bytes, stamp.mtime_ns, stamp.ctime_ns, stamp.inode, digest]


def _read(path: Path) -> dict[str, list[Any]]:
    """What a journal holds; one that cannot be read is as good as none."""
    try:
        document = json.loads(path.read_bytes())
        if document["schema"] == _SCHEMA and isinstance(document["files"], dict):
            return dict(document["files"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        pass
    return {}
