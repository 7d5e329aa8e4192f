"""Writing a file whole: never half of it, and never over something that it did not finish."""

import os
import sys
from pathlib import Path

from k31ctl.errors import InputError

STANDARD_OUTPUT = Path("-")


def write_whole(path: Path, text: str) -> None:
    """Write to a temporary file beside ``path`` and rename it; ``-`` is standard output.

    Raises InputError where the folder cannot be written to; nothing is left behind.
    """
    if path == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    try:
        target = path.resolve()
        if target.exists() and not (target.is_file() or target.is_dir()):
            raise InputError(
                f"{path.name} is a device or a pipe, not a file",
                where=str(path),
                remedy="name a regular file, or - for standard output",
            )
        _replace(target, text)
    except OSError as error:
        raise InputError(
            f"cannot write {path.name}: {(error.strerror or 'failed').lower()}",
            where=str(path),
            remedy="name a file in a folder that exists and that you may write to",
        ) from error


def _replace(path: Path, text: str) -> None:
    import tempfile  # noqa: PLC0415  slow to import, and most answers write no file

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
