"""How fast all cores of this machine together read and copy memory.

The C library does both, outside the interpreter's lock: ``memchr`` for a byte that is not there
reads every line, ``memmove`` reads and writes.
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from k31ctl.core.measured_host import Rate

_BLOCK_BYTES: Final = 128 * 2**20
_LEAST_S: Final = 0.15
_ABSENT: Final = 1


class Blocks:
    """Two blocks of memory for each core, far larger than any cache together."""

    def __init__(self, *, num_cores: int, free_bytes: int) -> None:
        self.num_cores = num_cores
        self.num_bytes = min(_BLOCK_BYTES, max(2**20, free_bytes // (4 * num_cores)))
        self._pairs = [self._pair() for _ in range(num_cores)]
        self._library = ctypes.CDLL(None)
        self._memchr = self._library.memchr
        self._memchr.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
        self._memchr.restype = ctypes.c_void_p
        self._memmove = self._library.memmove
        self._memmove.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self._memmove.restype = ctypes.c_void_p

    def _pair(self) -> tuple[ctypes.Array[ctypes.c_char], ctypes.Array[ctypes.c_char]]:
        first = ctypes.create_string_buffer(self.num_bytes)
        second = ctypes.create_string_buffer(self.num_bytes)
        # Every page is written once, or all of them would be the same page of zeros.
        ctypes.memset(first, 0, self.num_bytes)
        ctypes.memset(second, 0, self.num_bytes)
        return first, second

    def read(self, core: int) -> int:
        """Read one core's first block; returns the bytes."""
        first, _ = self._pairs[core]
        self._memchr(ctypes.addressof(first), _ABSENT, self.num_bytes)
        return self.num_bytes

    def copy(self, core: int) -> int:
        """Copy one core's first block over its second; returns the bytes read and written."""
        first, second = self._pairs[core]
        self._memmove(ctypes.addressof(second), ctypes.addressof(first), self.num_bytes)
        return 2 * self.num_bytes


def memory_rates(
    *, num_cores: int, free_bytes: int, repeats: int, clock: Callable[[], float]
) -> tuple[Rate, Rate]:
    """Bytes per second that all cores read, and that they copy, read and written counted."""
    blocks = Blocks(num_cores=num_cores, free_bytes=free_bytes)
    size = f"{num_cores} blocks of {blocks.num_bytes >> 20} MiB on as many threads"
    read = [_together(blocks.read, num_cores, clock) for _ in range(repeats)]
    copy = [_together(blocks.copy, num_cores, clock) for _ in range(repeats)]
    return (
        rate(read, f"reading {size}, the median of {repeats}"),
        rate(copy, f"copying {size}, read and written counted, the median of {repeats}"),
    )


def _together(work: Callable[[int], int], num_cores: int, clock: Callable[[], float]) -> float:
    """Bytes per second of one thread a core, all begun at once."""
    done = [0] * num_cores
    ends = [0.0] * num_cores
    gate = threading.Barrier(num_cores + 1)

    def run(core: int) -> None:
        try:
            gate.wait()
        except threading.BrokenBarrierError:
            return
        until = clock() + _LEAST_S
        while clock() < until:
            done[core] += work(core)
        ends[core] = clock()

    threads = [threading.Thread(target=run, args=(core,)) for core in range(num_cores)]
    try:
        for thread in threads:
            thread.start()
        gate.wait()
    except BaseException:  # an interrupt: the threads would wait for ever, and the exit for them
        gate.abort()
        raise
    begun = clock()
    for thread in threads:
        thread.join()
    return sum(done) / max(max(ends) - begun, 1e-9)


def rate(values: Sequence[float], how: str) -> Rate:
    """The median of repeats, with the slowest and the fastest."""
    return Rate(value=median(values), low=min(values), high=max(values), how=how)
