"""Checks of the GPUs' health: memory errors, faults in the kernel's log, clocks, slices."""

from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.gpu_rules import GROUP, place
from k31ctl.core.host import Host
from k31ctl.core.host_rule import Fault, Need, Rule, Verdict, found, known, listed, skipped

_XIDS: Final = "NVIDIA Xid catalogue, docs.nvidia.com/deploy/xid-errors"
_APPLICATION_XIDS: Final = frozenset({11, 13, 25, 31, 32, 43, 45, 68, 137})
_HARDWARE_XIDS: Final = frozenset(
    {48, 62, 64, 74, 79, 92, 95, 119, 120, 122, 123, 136, 140, 143, 155, 156, 158, 171, 172}
    | set(range(144, 151))
)
_SMI: Final = "nvidia-smi -q; NVIDIA's manual of nvidia-smi"


def ecc_uncorrected(host: Host, need: Need) -> Verdict:
    """No uncorrectable memory error since the driver was loaded."""
    gpus = known(host.gpus).gpus
    if all(gpu.ecc_uncorrected is None for gpu in gpus):
        return skipped("the driver counts no memory errors here")
    faults = [
        Fault(
            message=f"{gpu.ecc_uncorrected} uncorrectable memory errors since the driver started",
            remedy="drain the node and reset the GPU; have it replaced if they come back",
            where=place(gpu),
        )
        for gpu in gpus
        if gpu.ecc_uncorrected
    ]
    return found(*faults, good="no uncorrectable error")


def ecc_mode(host: Host, need: Need) -> Verdict:
    """Error correction is on."""
    off = [place(gpu) for gpu in known(host.gpus).gpus if gpu.ecc_on is False]
    faults = [
        Fault(
            message="error correction is off: a flipped bit changes answers silently",
            remedy="nvidia-smi -e 1, then reboot",
            where=listed(off),
        )
    ]
    return found(*(faults if off else ()), good="error correction is on")


def repairs(host: Host, need: Need) -> Verdict:
    """No GPU waits for, or failed at, a repair of its memory, or asks for a reset."""
    faults = [
        Fault(
            message=f"{', '.join((*gpu.repairs, *((gpu.recovery,) if gpu.recovery else ())))}",
            remedy="have the GPU replaced"
            if any("Failure" in r or "Unrepairable" in r or "Threshold" in r for r in gpu.repairs)
            else "reset the GPU or reboot the node before serving",
            where=place(gpu),
        )
        for gpu in known(host.gpus).gpus
        if gpu.repairs or gpu.recovery
    ]
    return found(*faults, good="no repair is due")


def xid_hardware(host: Host, need: Need) -> Verdict:
    """The kernel logged no fault that needs a reset or a replacement."""
    log = known(host.kernel_log)
    bad = [f for f in log if f.code == 0 or f.code in _HARDWARE_XIDS]
    faults = [
        Fault(
            message=f"{_times(sum(f.bus_id == bus and f.code == code for f in bad))} since boot: "
            f"{next(f.text for f in bad if f.bus_id == bus and f.code == code)}",
            remedy="reset the GPU or reboot; 79, 140 and repeated 48 or 74 mean a replacement",
            where=f"GPU {bus}",
        )
        for bus, code in sorted({(f.bus_id, f.code) for f in bad})
    ]
    return found(*faults, good="no hardware fault in the kernel log", lines=len(log))


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def xid_other(host: Host, need: Need) -> Verdict:
    """The kernel logged no fault of a program either."""
    log = known(host.kernel_log)
    codes = sorted({f.code for f in log if f.code and f.code not in _HARDWARE_XIDS})
    faults = [
        Fault(
            message=f"Xid {code}, {_times(sum(f.code == code for f in log))} since boot: "
            + ("a program's own mistake, usually" if code in _APPLICATION_XIDS else "look it up"),
            remedy="find out which program it was; where it was the engine, use a newer build",
            where=f"GPU {next(f.bus_id for f in log if f.code == code)}",
        )
        for code in codes
    ]
    return found(*faults, good="no other Xid")


def persistence(host: Host, need: Need) -> Verdict:
    """The driver stays loaded between programs."""
    off = [place(gpu) for gpu in known(host.gpus).gpus if gpu.persistence is False]
    if all(gpu.persistence is None for gpu in known(host.gpus).gpus):
        return skipped("this driver has no such mode")
    faults = [
        Fault(
            message="persistence mode is off: every start of a program initialises the GPU anew",
            remedy="systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1",
            where=listed(off),
        )
    ]
    return found(*(faults if off else ()), good="persistence mode is on")


def whole(host: Host, need: Need) -> Verdict:
    """No GPU is sliced."""
    sliced = [gpu for gpu in known(host.gpus).gpus if gpu.partition]
    faults = [
        Fault(
            message=f"in slices ({gpu.partition}); engines take whole GPUs",
            remedy="nvidia-smi -mig 0"
            if gpu.vendor == "nvidia"
            else "amd-smi set --compute-partition SPX",
            where=place(gpu),
        )
        for gpu in sliced
    ]
    return found(*faults, good="no GPU is sliced")


def full_speed(host: Host, need: Need) -> Verdict:
    """Nothing slows the clocks: no heat, no brake, no fixed clock, no lower power limit."""
    faults = []
    for gpu in known(host.gpus).gpus:
        reasons = [reason.lower().replace("hw ", "hardware ") for reason in gpu.slowed_by]
        limit, most = gpu.power_limit_w, gpu.default_power_limit_w
        if limit is not None and most is not None and limit < most:
            reasons.append(f"a power limit of {limit:.0f} W instead of {most:.0f} W")
        if reasons:
            faults.append(
                Fault(
                    message=f"slowed by {', '.join(reasons)}",
                    remedy="cool the node, or give clocks and power back: nvidia-smi -rgc, -rac, "
                    "-pl (needs root)",
                    where=place(gpu),
                )
            )
    return found(*faults, good="nothing slows the clocks")


GPU_HEALTH_RULES: Final = (
    Rule(
        id="gpu-ecc-errors",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("gpus",),
        source=_SMI,
        judge=ecc_uncorrected,
    ),
    Rule(
        id="gpu-ecc-mode",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("gpus",),
        source=_SMI,
        judge=ecc_mode,
    ),
    Rule(
        id="gpu-repairs",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("gpus",),
        source="NVIDIA GPU memory error management",
        judge=repairs,
    ),
    Rule(
        id="gpu-xid",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("kernel_log",),
        source=_XIDS,
        judge=xid_hardware,
    ),
    Rule(
        id="gpu-xid-program",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("kernel_log",),
        source=_XIDS,
        judge=xid_other,
    ),
    Rule(
        id="gpu-persistence",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("gpus",),
        source=_SMI,
        judge=persistence,
    ),
    Rule(
        id="gpu-whole",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("gpus",),
        source="NVIDIA MIG user guide; AMD compute partitioning guide",
        judge=whole,
    ),
    Rule(
        id="gpu-clocks",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("gpus",),
        source=_SMI,
        judge=full_speed,
    ),
)
