"""Files that others may have put there: none is waited for, and none read without end."""

import os
import stat
from errno import EFBIG, EINVAL
from pathlib import Path


def read_regular(path: Path, *, most_bytes: int) -> bytes:
    """Return what a file holds.

    Raises OSError, whose ``strerror`` says why: also for a device or a pipe, which is not opened,
    and for a file that holds more.
    """
    if regular_status(path).st_size <= most_bytes:
        with path.open("rb") as stream:
            found = stream.read(most_bytes + 1)
        if len(found) <= most_bytes:
            return found
    raise OSError(EFBIG, f"larger than {most_bytes:,} bytes", str(path))


def regular_status(path: Path) -> os.stat_result:
    """Return the status of a file; raises OSError where it is no regular one."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(EINVAL, "not a regular file", str(path))
    return status
