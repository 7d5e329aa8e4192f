"""What this process has to be like to measure well: room for connections, no collector."""

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from k31ctl.errors import InputError

_SPARE_FILES: Final = 64


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector from stopping the clock; what runs here makes no cycles."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def allow_connections(count: int) -> None:
    """Raise the limit of open files; raises InputError where the system does not let us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and count + _SPARE_FILES > hard:
        raise InputError(
            f"{count:,} connections need more open files than the {hard:,} allowed",
            where="this machine",
            remedy="lower the concurrency or --most-in-flight, or raise ulimit -n",
        )
    if soft != resource.RLIM_INFINITY and soft < count + _SPARE_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + _SPARE_FILES, hard))
