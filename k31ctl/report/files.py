"""Writing a file whole: never half of it, and never over something that it did not finish."""

import os
import sys
from collections.abc import Mapping
from errno import EISDIR
from pathlib import Path

from k31ctl.errors import InputError

STANDARD_OUTPUT = Path("-")


def write_whole(path: Path, text: str) -> None:
    """Write one file whole; ``-`` is standard output. Raises InputError as ``write_all`` does."""
    write_all({path: text})


def write_all(texts: Mapping[Path, str]) -> None:
    """Write every file to a temporary one beside it, then rename them all; ``-`` is printed last.

    Raises InputError where one cannot be written; then none of them is, and nothing is left behind.
    """
    files = {path: text for path, text in texts.items() if path != STANDARD_OUTPUT}
    waiting: list[tuple[Path, Path]] = []
    try:
        for path, text in files.items():
            waiting.append(_prepared(path, text))
        while waiting:
            temporary, target = waiting[0]
            temporary.replace(target)
            waiting.pop(0)
    except OSError as error:
        raise _unwritable(waiting[0][1] if waiting else path, error) from error
    finally:
        for temporary, _ in waiting:
            temporary.unlink(missing_ok=True)
    if STANDARD_OUTPUT in texts:
        sys.stdout.write(texts[STANDARD_OUTPUT])


def require_writable(*paths: Path | None) -> None:
    """Raise InputError where one cannot be written, before the work that it is for; ``-`` can."""
    for path in paths:
        if path is not None and path != STANDARD_OUTPUT:
            temporary, _ = _prepared(path, "")
            temporary.unlink()


def make_folder(path: Path) -> None:
    """Make a folder where there is none; InputError where that cannot be done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder: {(error.strerror or 'failed').lower()}",
            where=str(path),
            remedy="name a folder that you may write to",
        ) from error


def _prepared(path: Path, text: str) -> tuple[Path, Path]:
    """The text on the disk under a temporary name, and the place that it is for."""
    try:
        target = path.resolve()
        if target.is_dir():
            raise IsADirectoryError(EISDIR, "is a directory")
        if target.exists() and not target.is_file():
            raise InputError(
                f"{path.name} is a device or a pipe, not a file",
                where=str(path),
                remedy="name a regular file, or - for standard output",
            )
        return _written(target, text), target
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot write {path.name or path}: {(error.strerror or 'failed').lower()}",
        where=str(path),
        remedy="name a file in a folder that exists and that you may write to",
    )


def _written(path: Path, text: str) -> Path:
    import tempfile  # noqa: PLC0415  slow to import, and most answers write no file

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(
            handle, "w", encoding="utf-8", errors="backslashreplace", newline=""
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
