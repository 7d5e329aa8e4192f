"""Looks at a folder of weights and times a bounded read, as JSON; reads only.

It runs on its own, so that a file system that hangs can be left. Reads go past the page cache
where the file system allows it and leave access times alone where this user may; otherwise few
bytes are read, through the cache.
"""

import json
import mmap
import os
import sys
import threading
import time
from typing import Any, Final

_BLOCK_BYTES: Final = 8 * 2**20
_SMALLEST_BYTES: Final = 64 * 2**20
_MOST_CACHED_BYTES: Final = 256 * 2**20
_MOST_SECONDS: Final = 1.5
_NUM_READERS: Final = 4


def main() -> None:
    """Print what is in the folder, or the folder of the file, that the first argument names."""
    named = sys.argv[1]
    try:
        folder = named if os.path.isdir(named) else os.path.dirname(named) or "."  # noqa: PTH112, PTH120
        files = _files(folder) if folder == named else [(named, os.stat(named).st_size)]  # noqa: PTH116
        room = os.statvfs(folder)
        found: dict[str, Any] = {
            "folder": os.path.realpath(folder),
            "free_bytes": room.f_frsize * room.f_bavail,
            "present_bytes": sum(size for _, size in files),
            "num_files": len(files),
        }
        found |= _timed(files)
    except OSError as error:
        sys.exit((error.strerror or "cannot be read").lower())
    sys.stdout.write(json.dumps(found))


def _files(folder: str) -> list[tuple[str, int]]:
    """Safetensors files and their sizes, the largest first."""
    with os.scandir(folder) as entries:
        found = [(e.path, e.stat().st_size) for e in entries if e.name.endswith(".safetensors")]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))


def _timed(files: list[tuple[str, int]]) -> dict[str, Any]:
    large = [(path, size) for path, size in files if size >= _SMALLEST_BYTES]
    if not large:
        return {"unread": "no safetensors file of 64 MiB or more"}
    direct = _opens_directly(large[0][0])
    until = time.monotonic() + _MOST_SECONDS
    start = time.perf_counter()
    if direct:
        counts = [0] * _NUM_READERS
        threads = [
            threading.Thread(target=_read, args=(large, number, counts, until), daemon=True)
            for number in range(_NUM_READERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        total = sum(counts)
    else:
        total = _read_cached(large[0][0], until)
    seconds = time.perf_counter() - start
    return {"read": {"read_bytes": total, "seconds": seconds, "direct": direct}} if total else {}


def _opens_directly(path: str) -> bool:
    try:
        handle = _opened(path, os.O_DIRECT)
    except OSError:
        return False
    try:
        with mmap.mmap(-1, _BLOCK_BYTES) as block:
            return os.preadv(handle, [block], 0) > 0
    except OSError:
        return False
    finally:
        os.close(handle)


def _opened(path: str, flags: int) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags | os.O_NOATIME)
    except PermissionError:  # access times are only the owner's to leave alone
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)


def _part(size: int, number: int, num_files: int) -> tuple[int, int]:
    """First byte and end of a reader's own part of its file, in whole blocks but for the end."""
    num_sharing = len(range(number % num_files, _NUM_READERS, num_files))
    blocks = -(-size // _BLOCK_BYTES)
    index = number // num_files
    first, end = (blocks * n // num_sharing * _BLOCK_BYTES for n in (index, index + 1))
    return first, min(end, size)


def _read(files: list[tuple[str, int]], number: int, counts: list[int], until: float) -> None:
    """One reader, until it has read its part or the time is over."""
    num_files = min(len(files), _NUM_READERS)
    path, size = files[number % num_files]
    offset, end = _part(size, number, num_files)
    handle = _opened(path, os.O_DIRECT)
    try:
        with mmap.mmap(-1, _BLOCK_BYTES) as block:
            while offset < end and time.monotonic() < until:
                got = os.preadv(handle, [block], offset)
                counts[number] += got
                offset += got
                if got == 0:
                    break
    finally:
        os.close(handle)


def _read_cached(path: str, until: float) -> int:
    handle = _opened(path, 0)
    total = 0
    try:
        while total < _MOST_CACHED_BYTES and time.monotonic() < until:
            got = len(os.pread(handle, _BLOCK_BYTES, total))
            total += got
            if got == 0:
                break
    finally:
        os.close(handle)
    return total


if __name__ == "__main__":
    main()
