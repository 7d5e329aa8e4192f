"""Whether the program's own files in a target are its own: neither links nor something else.

Parts are deleted and a lock is emptied by name. Through a link that would be another's files.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from k31ctl.errors import RefusedError
from k31ctl.fetch.journal import STATE_FOLDER
from k31ctl.fetch.manifest import MANIFEST_NAME
from k31ctl.fetch.partial_marker import MARKER_NAME

_FOLDERS: Final = (STATE_FOLDER, f"{STATE_FOLDER}/parts", f"{STATE_FOLDER}/marks")
_STATES: Final = ("lock", "journal.json", "snapshot.json", "origins.json", "verify.json")
_FILES: Final = tuple(f"{STATE_FOLDER}/{name}" for name in _STATES)
_RECORDS: Final = (MANIFEST_NAME, MARKER_NAME)


def require_own_places(folder: Path) -> None:
    """Raise RefusedError where something of another kind has the name of a file of ours."""
    for name in (*_FOLDERS, *_FILES, *_RECORDS):
        try:
            mode = (folder / name).lstat().st_mode
        except FileNotFoundError:
            continue
        except OSError:
            return  # the target itself is no folder, or may not be read: told by who writes to it
        is_ours = stat.S_ISDIR(mode) if name in _FOLDERS else stat.S_ISREG(mode)
        if not is_ours:
            raise in_the_way(folder / name)


def in_the_way(path: Path) -> RefusedError:
    """Return the failure of a place of ours that something else has."""
    return RefusedError(
        f"{_kind(path)} is in the way of the program's own files",
        where=str(path),
        remedy="move it away, or name another folder with --to",
        rule="fetch-in-the-way",
    )


def opened(path: Path, flags: int) -> int:
    """Open a file of ours, never through a link; raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def make_folders(root: Path, path: str) -> Path:
    """Make the folders of a relative path below a folder and return its place.

    Raises OSError where one of them is a link: what is written there would lie elsewhere.
    """
    there = root
    for part in path.split("/")[:-1]:
        there /= part
        there.mkdir(exist_ok=True)
        if there.is_symlink():
            raise OSError(errno.ELOOP, "a link is in the way of a folder", str(there))
    return root / path


def _kind(path: Path) -> str:
    if path.is_symlink():
        return "a link"
    if path.is_dir():
        return "a folder"
    return "a file" if path.is_file() else "a special file"
