"""Writing a file whole: never half of it, and never over something that it did not finish."""

import os
import sys
from collections.abc import Mapping
from errno import EISDIR
from os import strerror
from pathlib import Path

from k31ctl.errors import InputError

STANDARD_OUTPUT = Path("-")


def write_whole(path: Path, text: str) -> None:
    """Write one file; see ``write_all``."""
    write_all({path: text})


def write_all(texts: Mapping[Path, str]) -> None:
    """Write every file to a temporary one beside it, then rename all; ``-`` is standard output.

    Raises InputError for the first that cannot be written; then no new file is left behind.
    """
    waiting: list[tuple[Path, Path]] = []
    new: list[Path] = []
    path = Path()
    try:
        for path, text in texts.items():
            if path != STANDARD_OUTPUT:
                target = _target(path)
                waiting.append((_temporary(target, text), target))
        while waiting:
            temporary, path = waiting[0]
            was_there = path.exists()
            temporary.replace(path)
            del waiting[0]
            new += [] if was_there else [path]
    except OSError as error:
        for made in new:
            made.unlink(missing_ok=True)
        raise InputError(
            f"cannot write {path.name}: {(error.strerror or 'failed').lower()}",
            where=str(path),
            remedy="name a file in a folder that exists and that you may write to",
        ) from error
    finally:
        for temporary, _ in waiting:
            temporary.unlink(missing_ok=True)
    sys.stdout.write(texts.get(STANDARD_OUTPUT, ""))


def _target(path: Path) -> Path:
    """The file that a path leads to; a folder or a device is never written over."""
    target = path.resolve()
    if target.is_dir():
        raise IsADirectoryError(EISDIR, strerror(EISDIR))
    if target.exists() and not target.is_file():
        raise InputError(
            f"{path.name} is a device or a pipe, not a file",
            where=str(path),
            remedy="name a regular file, or - for standard output",
        )
    return target


def _temporary(path: Path, text: str) -> Path:
    """A whole file beside ``path``; text that no encoding has is written escaped."""
    import tempfile  # noqa: PLC0415  slow to import, and most answers write no file

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(
            handle, "w", encoding="utf-8", errors="backslashreplace", newline=""
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
