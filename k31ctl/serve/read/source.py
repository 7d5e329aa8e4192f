"""A launch file's text: bounded, whole, and text at all."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from k31ctl.errors import InputError
from k31ctl.values import frozen

MOST_BYTES: Final = 1 << 20


@frozen
class Source:
    """The name a file was given by, and its text."""

    name: str
    text: str

    def line(self, offset: int) -> int:
        """The number of the line that an offset into the text is in, from 1."""
        return self.text.count("\n", 0, offset) + 1


def read_source(path: Path) -> Source:
    """Return the text of a file; InputError where it is none, too large, or not a file at all.

    The file is opened without waiting, so that a pipe without a writer is refused and not awaited.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise InputError(
            f"{kind}, not a file", where=str(path), remedy="name a launch file, or - for a pipe"
        )
    with os.fdopen(descriptor, "rb") as file:
        return source_of(file.read(MOST_BYTES + 1), name=str(path))


def source_of(content: bytes, *, name: str) -> Source:
    """Return bytes as the text of a launch file; InputError where they are none."""
    if len(content) > MOST_BYTES:
        raise InputError(
            f"larger than {MOST_BYTES >> 20} MiB, which no launch file is",
            where=name,
            remedy="name the script or manifest itself",
        )
    if b"\0" in content:
        raise InputError(
            "binary, not a launch file", where=name, remedy="name a script or a manifest"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8 text: byte {error.start}", where=name, remedy="save the file as UTF-8"
        ) from None
    return Source(name=name, text=text)


def _unreadable(path: Path, error: Exception) -> InputError:
    why = "not a name of a file"
    if isinstance(error, OSError):
        why = (error.strerror or "it cannot be read").lower()
        if error.errno == errno.ELOOP:
            why = "a loop of symbolic links"
    return InputError(why, where=str(path)[:300], remedy="name a launch file that can be read")
