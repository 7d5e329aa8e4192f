"""Memory, shared memory, limits and the machine itself, out of /proc and /sys."""

import os
import platform
import re
import resource
from typing import Final

from k31ctl.core.host import Limits, Memory, Segments, Shm, System, Why
from k31ctl.host.probe import Missed, Probe, whole

# What Python, PyTorch, NCCL and the engines call their shared memory.
_SEGMENT: Final = re.compile(
    r"(psm_|nccl-|torch_|vllm|sglang|sgl_|sem\.(mp|loky)-|mooncake|nixl).*"
)
_MOST_PROCESSES: Final = 20_000
_CGROUP_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
_NO_LIMIT_BYTES: Final = 2**60  # cgroup v1 writes a number near 2^63 where there is none


def system(probe: Probe) -> System:
    """Kernel, distribution and processors."""
    release = probe.line("/proc/sys/kernel/osrelease")
    named = {}
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            pairs = (line.partition("=") for line in probe.text(path).splitlines())
            named = {key: value.strip('"') for key, _, value in pairs}
            break
        except Missed:
            continue
    try:
        processors = probe.text("/proc/cpuinfo")
    except Missed:
        processors = ""
    model = re.search(r"(?m)^model name\s*:\s*(.+)$", processors)
    return System(
        kernel=release,
        distribution=named.get("PRETTY_NAME", ""),
        machine=platform.machine(),
        num_processors=len(re.findall(r"(?m)^processor\s*:", processors)),
        processor=model[1].strip() if model else "",
    )


def memory(probe: Probe) -> Memory:
    """Host memory and how it is shared out; raises Missed without /proc/meminfo."""
    told = {}
    for line in probe.text("/proc/meminfo").splitlines():
        key, _, value = line.partition(":")
        told[key] = whole(value) or 0
    if "MemTotal" not in told:
        raise Missed(Why.FAILED, "/proc/meminfo has no MemTotal")
    huge = probe.line("/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", huge)
    balancing = probe.number("/proc/sys/kernel/numa_balancing")
    nodes = [n for n in probe.names("/sys/devices/system/node") if re.fullmatch(r"node\d+", n)]
    return Memory(
        total_bytes=told["MemTotal"] * 1024,
        available_bytes=told.get("MemAvailable", told.get("MemFree", 0)) * 1024,
        limit_bytes=_cgroup_limit(probe),
        reserved_huge_bytes=told.get("HugePages_Total", 0) * told.get("Hugepagesize", 0) * 1024,
        transparent_huge_pages=chosen[1] if chosen else "",
        num_numa_nodes=max(1, len(nodes)),
        numa_balancing=None if balancing is None else balancing != 0,
    )


def _cgroup_limit(probe: Probe) -> int | None:
    limits = [probe.number(path) for path in _CGROUP_LIMITS]
    known = [limit for limit in limits if limit is not None and 0 < limit < _NO_LIMIT_BYTES]
    return min(known, default=None)


def shm(probe: Probe) -> Shm:
    """Size of /dev/shm and segments that no process has open; raises Missed."""
    at = probe.at("/dev/shm")
    try:
        room = os.statvfs(at)
    except OSError as error:
        raise Missed(Why.ABSENT, f"/dev/shm: {(error.strerror or 'none').lower()}") from None
    return Shm(
        size_bytes=room.f_frsize * room.f_blocks,
        free_bytes=room.f_frsize * room.f_bavail,
        stale=_stale(probe),
    )


def _stale(probe: Probe) -> Segments:
    sizes: dict[str, int] = {}
    for name in probe.names("/dev/shm"):
        if _SEGMENT.fullmatch(name):
            try:
                sizes[name] = (probe.at("/dev/shm") / name).lstat().st_size
            except OSError:
                continue
    held, all_seen = _held(probe) if sizes else (set(), True)
    left = {name: size for name, size in sizes.items() if name not in held}
    return Segments(
        num_segments=len(left),
        total_bytes=sum(left.values()),
        example=max(left, key=lambda name: (left[name], name), default=""),
        all_holders_seen=all_seen,
    )


def _held(probe: Probe) -> tuple[set[str], bool]:
    """Names in /dev/shm that some process maps or has open, and whether all could be asked."""
    held: set[str] = set()
    all_seen = True
    numbers = [name for name in probe.names("/proc") if name.isdigit()]
    for number in numbers[:_MOST_PROCESSES]:
        try:
            maps = probe.text(f"/proc/{number}/maps")
        except Missed as missed:
            all_seen = all_seen and missed.kind is not Why.DENIED
            continue
        held.update(re.findall(r"/dev/shm/([^\s/]+)", maps))
        held.update(_open_names(probe, number))
    return held, all_seen and len(numbers) <= _MOST_PROCESSES


def _open_names(probe: Probe, number: str) -> list[str]:
    found = []
    for name in probe.names(f"/proc/{number}/fd"):
        try:
            target = os.readlink(probe.at(f"/proc/{number}/fd/{name}"))  # noqa: PTH115  a string
        except OSError:
            continue
        if target.startswith("/dev/shm/"):
            found.append(target.removeprefix("/dev/shm/").removesuffix(" (deleted)"))
    return found


def limits(probe: Probe) -> Limits:
    """Soft limits of this process, which the engine would inherit; of a recorded tree, its own."""
    recorded = _recorded_limits(probe)
    if recorded is not None:
        return recorded
    kinds = (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE, resource.RLIMIT_STACK)
    soft = [resource.getrlimit(kind)[0] for kind in kinds]
    memlock, nofile, stack = (None if v == resource.RLIM_INFINITY else v for v in soft)
    return Limits(memlock_bytes=memlock, nofile=nofile, stack_bytes=stack)


def _recorded_limits(probe: Probe) -> Limits | None:
    try:
        text = probe.text("/proc/self/limits")
    except Missed:
        return None

    def soft(name: str) -> int | None:
        found = re.search(rf"(?m)^{name}\s+(\S+)", text)
        return whole(found[1]) if found else None

    return Limits(
        memlock_bytes=soft("Max locked memory"),
        nofile=soft("Max open files"),
        stack_bytes=soft("Max stack size"),
    )


def home_filesystem(probe: Probe) -> str:
    """The kind of file system that the home folder is on; raises Missed where it is not told."""
    home = probe.environment.get("HOME", "")
    if not home.startswith("/"):
        raise Missed(Why.ABSENT, "HOME is not set")
    return filesystem_of(home, probe.text("/proc/self/mounts"))


def filesystem_of(path: str, mounts: str) -> str:
    """The type of the mount that a path lies on, by the text of /proc/mounts."""
    best = ("", "")
    for line in mounts.splitlines():
        cells = line.split()
        if len(cells) < 3:  # noqa: PLR2004  device, place, type
            continue
        place = cells[1].replace("\\040", " ")
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best[0]):
            best = (place, cells[2])
    return best[1]
