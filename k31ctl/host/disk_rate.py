"""How fast files are read from the disk that a folder lies on, past the page cache."""

import mmap
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from k31ctl.core.measured_host import Rate
from k31ctl.host.memory_rates import rate

_CHUNK_BYTES: Final = 8 * 2**20
_NUM_READERS: Final = 4
_IN_MEMORY: Final = ("tmpfs", "ramfs")


class Unmeasured(Exception):  # noqa: N818  an answer, not an error of ours
    """Why something could not be measured."""


def disk_rate(
    folder: Path,
    *,
    num_bytes: int,
    repeats: int,
    filesystem: str,
    clock: Callable[[], float],
) -> Rate:
    """Bytes per second of four readers of one file that is written there and removed again.

    Raises Unmeasured where the folder is in memory, full, or read through the cache alone.
    """
    if filesystem in _IN_MEMORY:
        raise Unmeasured(f"{folder} is in memory ({filesystem})")
    try:
        room = os.statvfs(folder)
        if room.f_frsize * room.f_bavail < 2 * num_bytes:
            raise Unmeasured(f"{folder} has no room for a file of {num_bytes >> 20} MiB")
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".k31ctl-bench-hw-") as file:
            _fill(file.fileno(), num_bytes)
            values = [_read(file.name, num_bytes, clock) for _ in range(repeats)]
    except OSError as error:
        raise Unmeasured(f"{folder}: {(error.strerror or 'failed').lower()}") from None
    return rate(
        values,
        f"{_NUM_READERS} readers of a file of {num_bytes >> 20} MiB on {filesystem or 'a disk'}, "
        f"past the page cache, the median of {repeats}",
    )


def _fill(descriptor: int, num_bytes: int) -> None:
    """Write what no disk can shorten, and have it on the disk."""
    chunk = os.urandom(_CHUNK_BYTES)
    for _ in range(num_bytes // _CHUNK_BYTES):
        os.write(descriptor, chunk)
    os.fsync(descriptor)


def _read(path: str, num_bytes: int, clock: Callable[[], float]) -> float:
    """Bytes per second of one reading of the whole file."""
    failures: list[OSError] = []
    share = num_bytes // _CHUNK_BYTES // _NUM_READERS * _CHUNK_BYTES

    def run(number: int) -> None:
        try:
            _read_part(path, number * share, share)
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(_NUM_READERS)]
    begun = clock()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = clock() - begun
    if failures:
        raise Unmeasured(f"{Path(path).parent} cannot be read past the page cache")
    return _NUM_READERS * share / max(seconds, 1e-9)


def _read_part(path: str, offset: int, num_bytes: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, _CHUNK_BYTES) as page_aligned:
            while num_bytes > 0:
                count = os.preadv(descriptor, [page_aligned], offset)
                if not count:
                    return
                offset, num_bytes = offset + count, num_bytes - count
    finally:
        os.close(descriptor)
