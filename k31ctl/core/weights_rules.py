"""Checks of the place where the weights are or shall be."""

from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.host import Host
from k31ctl.core.host_rule import Fault, Need, Rule, Verdict, fine, found, gib, known, skipped
from k31ctl.units import show

GROUP: Final = "weights and disks"
_NONE: Final = "no folder was named with --weights"
_SLOW_S: Final = 900.0
_TIMEOUT_S: Final = 3600.0
_NETWORK: Final = ("nfs", "nfs4", "cifs", "fuse", "lustre", "beegfs", "9p", "virtiofs", "ceph")
_S_PER_MINUTE: Final = 60


def readable(host: Host, need: Need) -> Verdict:
    """The folder answers, and may be read."""
    missed = host.missing("weights")
    if host.weights is None and missed is None:
        return skipped(_NONE)
    if missed is not None:
        return found(
            Fault(
                message=f"the folder of the weights cannot be read: {missed.why}",
                remedy="mount it, make it, or mend its rights; a network file system that does "
                "not answer hangs the engine too",
                where="--weights",
            )
        )
    told = known(host.weights)
    return fine(f"{told.folder}, {told.filesystem or 'file system not told'}")


def room(host: Host, need: Need) -> Verdict:
    """What is not there yet fits."""
    if host.weights is None:
        return skipped(_NONE)
    there = host.weights
    lacking = max(0, need.weight_bytes - there.present_bytes)
    faults = [
        Fault(
            message=f"{gib(lacking)} of {need.model.name} are not here yet, "
            f"{gib(there.free_bytes)} are free",
            remedy="make room, or name another folder",
            where=there.folder,
        )
    ]
    return found(
        *(faults if lacking > there.free_bytes else ()),
        good=f"{gib(there.present_bytes)} in {there.num_files:,} files, "
        f"{gib(there.free_bytes)} free",
        free_bytes=there.free_bytes,
        present_bytes=there.present_bytes,
        lacking_bytes=lacking,
    )


def speed(host: Host, need: Need) -> Verdict:
    """The weights of this node are read in a bearable time."""
    if host.weights is None:
        return skipped(_NONE)
    read = host.weights.read
    if read is None:
        return skipped(host.weights.unread or "nothing was read")
    rate = min(read.bytes_per_s, need.loader_bytes_per_s)
    seconds = need.node_weight_bytes / rate
    how = "past the page cache" if read.direct else "through the page cache, so perhaps too fast"
    said = f"reads at {show(read.bytes_per_s, 'B/s')} ({how})"
    limit = (
        f"; the engine's default loader reaches {show(need.loader_bytes_per_s, 'B/s')}"
        if rate < read.bytes_per_s
        else ""
    )
    load = f"{gib(need.node_weight_bytes)} load in about {minutes(seconds)}"
    faults = [
        Fault(
            message=f"{said}{limit}: {load}",
            remedy="copy the weights to local NVMe, or load with --load-format fastsafetensors or "
            "runai_streamer; raise the engine's start-up time-out "
            "(VLLM_ENGINE_READY_TIMEOUT_S) above this",
            where=host.weights.folder,
            severity=None if seconds > _TIMEOUT_S else Severity.WARNING,
        )
    ]
    return found(
        *(faults if seconds > _SLOW_S else ()),
        good=f"{said}{limit}; {load}",
        read_bytes_per_s=read.bytes_per_s,
        read_bytes=read.read_bytes,
        direct=read.direct,
        load_s=seconds,
    )


def minutes(seconds: float) -> str:
    """A time for a sentence."""
    if seconds < 2 * _S_PER_MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _S_PER_MINUTE:,.0f} min"


def place(host: Host, need: Need) -> Verdict:
    """The folder is on a disk: not in memory, not in a container's own layer, not far away."""
    if host.weights is None:
        return skipped(_NONE)
    kind = host.weights.filesystem
    why = {
        "tmpfs": "in memory, which the loader needs too",
        "ramfs": "in memory, which the loader needs too",
        "overlay": "in the container's own layer: slow, and gone with the container",
    }.get(kind, "")
    far = kind.split(".")[0] in _NETWORK
    faults = [
        Fault(
            message=f"the folder is {why or f'on {kind}, over the network'}",
            remedy="mount a folder of the host's NVMe and name that"
            if why
            else "every node reads the whole share at a start; copy to local NVMe for quick ones",
            where=host.weights.folder,
            severity=None if why else Severity.INFO,
        )
    ]
    return found(*(faults if why or far else ()), good=f"on {kind or 'a file system'}")


WEIGHTS_RULES: Final = (
    Rule(
        id="weights-folder",
        group=GROUP,
        severity=Severity.ERROR,
        sections=(),
        source="the file system's own answer",
        judge=readable,
        also=("weights",),
    ),
    Rule(
        id="weights-space",
        group=GROUP,
        severity=Severity.ERROR,
        sections=(),
        source="the model's inventory",
        judge=room,
        also=("weights",),
    ),
    Rule(
        id="weights-speed",
        group=GROUP,
        severity=Severity.ERROR,
        sections=(),
        source="a measured read; the storage profile local-nvme; vllm-project/recipes, Kimi-K3: "
        "VLLM_ENGINE_READY_TIMEOUT_S=3600",
        judge=speed,
        also=("weights",),
    ),
    Rule(
        id="weights-filesystem",
        group=GROUP,
        severity=Severity.WARNING,
        sections=(),
        source="docs/cold_start.md, storage",
        judge=place,
        also=("weights",),
    ),
)
