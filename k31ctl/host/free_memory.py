"""How much memory this process could still have: the machine's, or what its cgroup leaves."""

import os
from pathlib import Path
from typing import Final

from k31ctl.errors import InputError
from k31ctl.host.probe import Missed, Probe, Processes
from k31ctl.host.system import memory

_ROOT: Final = Path("/")
# Limit, use and statistics, as version 2 and version 1 of control groups name them.
_GROUPS: Final = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def free_host_bytes(probe: Probe) -> int:
    """Bytes that are available; what a cgroup holds of files is given back before it is full.

    Raises InputError where the machine does not say.
    """
    try:
        found = memory(probe).available_bytes
    except Missed as missed:
        raise InputError(
            f"free memory is not known: {missed.why}",
            where="this machine",
            remedy="run it where /proc/meminfo can be read",
        ) from None
    for limit_name, used_name, statistics, key in _GROUPS:
        limit = probe.number(f"/sys/fs/cgroup/{limit_name}")
        used = probe.number(f"/sys/fs/cgroup/{used_name}")
        if limit is not None and used is not None:
            files = _entry(probe, f"/sys/fs/cgroup/{statistics}", key)
            return max(0, min(found, limit - used + files))
    return found


def this_machine() -> Probe:
    """A probe of the machine that this runs on."""
    return Probe(
        root=_ROOT,
        path=os.environ.get("PATH", os.defpath),
        environment=dict(os.environ),
        timeout_s=10.0,
        processes=Processes(),
    )


def _entry(probe: Probe, path: str, key: str) -> int:
    try:
        lines = probe.text(path).splitlines()
    except Missed:
        return 0
    found = next((line for line in lines if line.startswith(f"{key} ")), "")
    number = found.partition(" ")[2].strip()
    return int(number) if number.isdigit() else 0
