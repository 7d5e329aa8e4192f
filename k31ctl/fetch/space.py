"""Whether a folder can take the files, told before the first byte."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from unicodedata import normalize

from k31ctl import units
from k31ctl.errors import RefusedError
from k31ctl.fetch.hub import HubFile
from k31ctl.fetch.journal import STATE_FOLDER
from k31ctl.values import frozen

_OVERHEAD_BYTES: Final = 16 * 1024 * 1024
_INODES_EACH: Final = 2
_QUOTA_TIMEOUT_S: Final = 2
_LONGEST_OWN_NAME: Final = len(f"{STATE_FOLDER}/parts/{'0' * 32}.json.{'0' * 20}.tmp")


@frozen
class Space:
    """Room on the filesystem of the target; ``needed_bytes`` is what this run will add."""

    folder: str
    mount: str
    free_bytes: int
    needed_bytes: int
    free_inodes: int | None
    needed_inodes: int
    quota_bytes: int | None
    is_case_sensitive: bool

    @property
    def left_bytes(self) -> int:
        """What stays free afterwards, in bytes."""
        return self.free_bytes - self.needed_bytes


def space_for(folder: Path, files: Sequence[HubFile], *, bytes_to_write: int, write: bool) -> Space:
    """Return the room in a folder, which need not exist yet.

    Raises RefusedError where the folder cannot be written or cannot hold the names.
    ``write`` tries the folder by making a file, which is gone afterwards; without it nothing on
    the disk changes.
    """
    there = _nearest(folder)
    require_spellings(folder, files)
    _require_names(folder, there, files)
    _require_places(folder, files)
    if write:
        _make(folder)
        there = folder
    _require_writable(there, write=write)
    case_sensitive = _is_case_sensitive(there) if write else _is_case_sensitive_by_name(there)
    if not case_sensitive:
        _require_distinct(folder, files)
    room = os.statvfs(there)
    return Space(
        folder=str(folder),
        mount=str(_mount(there)),
        free_bytes=room.f_bavail * room.f_frsize,
        needed_bytes=bytes_to_write + (_OVERHEAD_BYTES if bytes_to_write else 0),
        free_inodes=room.f_favail if room.f_files else None,
        needed_inodes=_INODES_EACH * sum(not os.path.lexists(folder / f.path) for f in files),
        quota_bytes=_quota_bytes(there),
        is_case_sensitive=case_sensitive,
    )


def drop_probes(folder: Path) -> None:
    """Remove what a killed look at the folder has left."""
    for probe in (folder / STATE_FOLDER).glob("probe-*"):
        probe.unlink(missing_ok=True)


def require_room(space: Space) -> None:
    """Raise RefusedError where bytes or inodes do not suffice."""
    free = space.free_bytes
    limits = [("free", free)]
    if space.quota_bytes is not None:
        limits.append(("left of your quota", space.quota_bytes))
    for what, num_bytes in limits:
        if num_bytes < space.needed_bytes:
            raise RefusedError(
                f"{units.show(space.needed_bytes, 'B')} are needed on {space.mount}, "
                f"{units.show(num_bytes, 'B')} are {what}",
                where=space.folder,
                remedy=f"free {units.show(space.needed_bytes - num_bytes, 'B')}, name another "
                "folder with --to, or fetch less with --include",
                rule="fetch-disk-space",
            )
    if space.free_inodes is not None and space.free_inodes < space.needed_inodes:
        raise RefusedError(
            f"{space.needed_inodes} inodes are needed on {space.mount}, {space.free_inodes} are "
            "free",
            where=space.folder,
            remedy="remove small files there, or name another folder with --to",
            rule="fetch-inodes",
        )


def require_spellings(folder: Path, files: Sequence[HubFile]) -> None:
    """Refuse names that this process cannot give to the system, before any file is looked at."""
    for file in files:
        try:
            os.fsencode(file.path)
        except UnicodeEncodeError:
            raise RefusedError(
                f"the locale cannot write the name {file.path[:80]!a}",
                where=str(folder),
                remedy="set LC_ALL=C.UTF-8 or PYTHONUTF8=1, or leave the file out with --exclude",
                rule="fetch-locale",
            ) from None


def _require_names(folder: Path, there: Path, files: Sequence[HubFile]) -> None:
    """Refuse names that the filesystem cannot hold."""
    longest_name = _limit(there, "PC_NAME_MAX", 255)
    longest_path = _limit(there, "PC_PATH_MAX", 4096)
    base = len(os.fsencode(folder.absolute())) + 1
    for file in files:
        name = max(len(os.fsencode(part)) for part in file.path.split("/"))
        path = base + max(len(os.fsencode(file.path)), _LONGEST_OWN_NAME)
        if name > longest_name or path >= longest_path:
            raise RefusedError(
                f"the path of {file.path[:80]!r} is too long for the filesystem",
                where=str(folder)[:200],
                remedy="name a folder with a shorter path with --to, or leave the file out "
                "with --exclude",
                rule="fetch-path-length",
            )


def _require_places(folder: Path, files: Sequence[HubFile]) -> None:
    """Refuse where a folder stands for a file, or a file or a link for a folder.

    Through a link the files would lie elsewhere; only the target itself may be one.
    """
    parents = {parent for file in files for parent in Path(file.path).parents if parent.name}
    wrong = [folder / path for path in sorted(parents) if _is_no_folder(folder / path)]
    wrong += [folder / file.path for file in files if (folder / file.path).is_dir()]
    for path in wrong[:1]:
        kind = "a folder" if path.is_dir() else "a file"
        if path.is_symlink():
            kind = "a link"
        raise RefusedError(
            f"{kind} is in the way of what is to be fetched",
            where=str(path),
            remedy="move it away, or name another folder with --to",
            rule="fetch-in-the-way",
        )


def _is_no_folder(path: Path) -> bool:
    return path.is_symlink() or (path.exists() and not path.is_dir())


def _limit(there: Path, name: str, default: int) -> int:
    try:
        return os.pathconf(there, name)
    except (OSError, ValueError):
        return default


def _require_distinct(folder: Path, files: Sequence[HubFile]) -> None:
    seen: dict[str, str] = {}
    for file in files:
        other = seen.setdefault(normalize("NFC", file.path).casefold(), file.path)
        if other != file.path:
            raise RefusedError(
                f"{other!r} and {file.path!r} are one file on this case-insensitive filesystem",
                where=str(folder),
                remedy="name a folder on a case-sensitive filesystem with --to, or leave one of "
                "them out with --exclude",
                rule="fetch-case",
            )


def _make(folder: Path) -> None:
    try:
        (folder / STATE_FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _require_writable(there: Path, *, write: bool) -> None:
    if not write:
        if not there.is_dir():
            raise _unwritable(there, NotADirectoryError(20, "not a directory"))
        if os.statvfs(there).f_flag & os.ST_RDONLY:
            raise _unwritable(there, OSError(30, "read-only file system"))
        if not os.access(there, os.W_OK | os.X_OK):
            raise _unwritable(there, PermissionError(13, "permission denied"))
        return
    probe = there / STATE_FOLDER / f"probe-{secrets.token_hex(4)}"
    try:
        probe.write_bytes(b"k31ctl")
        probe.unlink(missing_ok=True)
    except OSError as error:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
        raise _unwritable(there, error) from None


def _unwritable(folder: Path, error: OSError) -> RefusedError:
    return RefusedError(
        f"the target cannot be written: {(error.strerror or 'failed').lower()}",
        where=str(folder),
        remedy="name a folder that you may write to with --to",
        rule="fetch-read-only",
    )


def _is_case_sensitive(folder: Path) -> bool:
    probe = folder / STATE_FOLDER / f"probe-{secrets.token_hex(4)}-a"
    try:
        probe.write_bytes(b"")
        return not probe.with_name(probe.name.upper()).exists()
    finally:
        probe.unlink(missing_ok=True)


def _is_case_sensitive_by_name(folder: Path) -> bool:
    """Judge by the folder's own name in the other case, without writing."""
    other = folder.with_name(folder.name.swapcase())
    return other.name == folder.name or not other.exists() or not other.samefile(folder)


def _quota_bytes(folder: Path) -> int | None:
    """Return what is left of the user's quota where ``quota`` knows one, in bytes."""
    program = shutil.which("quota")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-w", "-p", "--filesystem", str(_mount(folder))],
            capture_output=True,
            text=True,
            timeout=_QUOTA_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    left = [
        (int(row[3]) - int(row[1].rstrip("*"))) * 1024
        for row in rows
        if len(row) > 3 and row[3].isdigit() and int(row[3]) and row[1].rstrip("*").isdigit()  # noqa: PLR2004
    ]
    return max(0, min(left)) if left else None


def _nearest(folder: Path) -> Path:
    """Return the folder, or the closest one above it that exists."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    return there


def _mount(folder: Path) -> Path:
    there = folder.resolve()
    while not there.is_mount() and there != there.parent:
        there = there.parent
    return there
