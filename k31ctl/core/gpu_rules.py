"""Checks of the GPUs: are they there, are they the right ones, and are they free."""

import re
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.host import Host, HostGpu, Why
from k31ctl.core.host_rule import (
    Fault,
    Need,
    Rule,
    Verdict,
    fine,
    found,
    gib,
    known,
    listed,
    skipped,
)
from k31ctl.core.model import SparseLatentAttention
from k31ctl.units import counted

GROUP: Final = "GPUs"
DRIVER_OF_CUDA: Final = {12: 525, 13: 580}
_SLACK: Final = 0.08
_CDNA3: Final = "gfx942"


def _gpus(number_of: int) -> str:
    return counted(number_of, "GPU") if number_of else "no GPU"


def _on_the_bus(number_of: int) -> str:
    return f"{_gpus(number_of)} {'is' if number_of <= 1 else 'are'} on the PCI bus"


def _such_nodes(number_of: int) -> str:
    return "such a node" if number_of == 1 else f"{number_of} such nodes"


def present(host: Host, need: Need) -> Verdict:
    """There is a GPU that a driver lists."""
    if host.gpus is not None and host.gpus.gpus:
        count = len(host.gpus.gpus)
        return fine(f"{count} x {host.gpus.gpus[0].name}", num_gpus=count)
    on_bus = host.devices.gpus if host.devices else ()
    missed = host.missing("gpus")
    if on_bus or (missed and missed.kind is Why.SLOW):
        return skipped(f"{_on_the_bus(len(on_bus))}; see gpu-driver-answers")
    why = missed.why if missed and missed.kind is not Why.ABSENT else "none is on the PCI bus"
    wanted = need.expected.id if need.expected else need.model.name
    return found(
        Fault(
            message=f"no GPU was found: {why}",
            remedy="run this on the machine that shall serve, and with the GPUs passed through "
            f"(docker run --gpus all), or plan for it: k31ctl plan {need.model.id}",
            where=f"this machine, for {wanted}",
        ),
        num_gpus=0,
    )


def driver_answers(host: Host, need: Need) -> Verdict:
    """The driver answers where GPUs are on the bus."""
    on_bus = known(host.devices).gpus
    listed_gpus = len(host.gpus.gpus) if host.gpus else 0
    vendors = sorted({gpu.vendor for gpu in on_bus})
    missed = host.missing("gpus")
    slow = missed is not None and missed.kind is Why.SLOW
    if not on_bus and not slow:
        return fine("it lists GPUs") if listed_gpus else skipped("no GPU is on the PCI bus")
    if missed is not None:
        return found(
            Fault(
                message=f"{_on_the_bus(len(on_bus))}, and the driver lists none: {missed.why}",
                remedy="give it longer with --timeout 60; where that does not help, look for Xid "
                "79 or 119 in the kernel log and reboot the node"
                if slow
                else "install the driver or load its module (modprobe nvidia, modprobe amdgpu)",
                where="driver",
            ),
            gpus_on_bus=len(on_bus),
        )
    lost = len(on_bus) - listed_gpus
    if host.gpus and lost > 0 and len(vendors) == 1 and vendors[0] == host.gpus.gpus[0].vendor:
        return found(
            Fault(
                message=f"{_on_the_bus(len(on_bus))}, the driver lists {listed_gpus or 'none'}",
                remedy="look for Xid 79 in the kernel log; reboot, and have the GPU replaced if it "
                "comes back",
                where="driver",
            ),
            gpus_on_bus=len(on_bus),
        )
    told = known(host.gpus)
    return fine(f"{told.told_by}, driver {told.driver}", driver=told.driver)


def device_access(host: Host, need: Need) -> Verdict:
    """This user may open the device files."""
    locked = list(known(host.devices).locked)
    faults = [
        Fault(
            message=f"this user may not open {listed(locked)}",
            remedy="add the user to the groups render and video (AMD), or mend the rights of "
            "/dev/nvidia*",
            where="/dev",
        )
    ]
    return found(*(faults if locked else ()), good="device files can be opened")


def count(host: Host, need: Need) -> Verdict:
    """As many GPUs as the hardware that was named."""
    gpus = known(host.gpus).gpus
    node = need.node_like(host)
    if node is None:
        return skipped("no hardware was named with --on, and no profile has this GPU")
    visible = (host.environment or {}).get("CUDA_VISIBLE_DEVICES", "")
    hint = f"; CUDA_VISIBLE_DEVICES is {visible}" if visible else ""
    lacking = node.num_gpus - len(gpus)
    faults = [
        Fault(
            message=f"{_gpus(len(gpus))}, {node.id} has {node.num_gpus}{hint}",
            remedy="pass all GPUs to this container or machine; where some are gone, look at "
            "lspci and the kernel log",
            where="driver",
            severity=None if need.expected else Severity.WARNING,
        )
    ]
    return found(*(faults if lacking > 0 else ()), good=f"{len(gpus)}, as {node.id}")


def kind(host: Host, need: Need) -> Verdict:
    """All GPUs are of the kind that was named."""
    gpus = known(host.gpus).gpus
    names = sorted({gpu.name for gpu in gpus})
    if len(names) > 1:
        return found(
            Fault(
                message=f"the GPUs are not alike: {', '.join(names)}",
                remedy="show the engine one kind with CUDA_VISIBLE_DEVICES",
                where="driver",
            )
        )
    if need.expected is None or not names:
        return fine("all alike") if names else skipped("no GPU")
    wanted = need.expected.gpu
    alike = names[0] == wanted.name or wanted.name in names[0]
    sizes = [gpu.memory_bytes for gpu in gpus]
    small = min(sizes) < (1 - _SLACK) * wanted.memory_bytes
    if alike and not small:
        return fine(f"{names[0]}, as {need.expected.id}")
    what = (
        f"{names[0]} has {gib(min(sizes))}, {need.expected.id} says {gib(wanted.memory_bytes)}"
        if alike
        else f"{names[0]} is not the {wanted.name} of {need.expected.id}"
    )
    return found(Fault(message=what, remedy="name this hardware with --on", where="--on"))


def supported(host: Host, need: Need) -> Verdict:
    """The model's kernels exist for this kind of GPU."""
    gpu = known(host.gpus).gpus[0]
    node = need.node_like(host)
    architecture = gpu.architecture or (node.gpu.architecture if node else None)
    name = need.model.name
    if architecture is None:
        return found(
            Fault(
                message=f"no profile and no recipe is known for {gpu.name}",
                remedy="k31ctl profiles list hardware shows what is known; expect surprises",
                where="driver",
                severity=Severity.WARNING,
            )
        )
    sparse = any(isinstance(layer, SparseLatentAttention) for layer in need.model.mixers)
    limits = need.engine.gpu_architectures
    excluded = (
        (architecture == _CDNA3 and need.model.architecture.startswith("KimiK3"))
        or (sparse and architecture in need.engine.sparse_excluded_gpus)
        or (bool(limits) and architecture not in limits)
        or gpu.vendor not in need.engine.vendors
    )
    faults = [
        Fault(
            message=f"{need.engine.name} has no kernels for {name} on {gpu.name} ({architecture})",
            remedy="use GPUs of sm_90, sm_100, sm_103 or gfx950, or another --engine",
            where="driver",
        )
    ]
    return found(*(faults if excluded else ()), good=f"{architecture} is known for {name}")


def weights_fit(host: Host, need: Need) -> Verdict:
    """The weights alone are smaller than the memory of all GPUs."""
    gpus = known(host.gpus).gpus
    have = need.num_nodes * sum(gpu.memory_bytes for gpu in gpus)
    faults = [
        Fault(
            message=f"the weights of {need.model.name} are {gib(need.weight_bytes)}, the GPUs of "
            f"{_such_nodes(need.num_nodes)} have {gib(have)}",
            remedy=f"use more nodes; k31ctl plan {need.model.id} --search finds what fits",
            where=f"{need.num_nodes} x {_gpus(len(gpus))}",
        )
    ]
    return found(
        *(faults if have < need.weight_bytes else ()),
        good=f"{gib(have)} for {gib(need.weight_bytes)} of weights; k31ctl plan counts the rest",
        gpu_memory_bytes=have,
        weight_bytes=need.weight_bytes,
    )


def memory_free(host: Host, need: Need) -> Verdict:
    """What the engine reserves of each GPU is free."""
    fraction = need.engine.memory.fraction.value
    faults = []
    for gpu in known(host.gpus).gpus:
        if gpu.used_bytes is None or gpu.used_bytes <= (1 - fraction) * gpu.memory_bytes:
            continue
        held = [f"{p.name or 'process'} ({p.pid})" for p in gpu.processes]
        faults.append(
            Fault(
                message=f"{gib(gpu.used_bytes)} of {gib(gpu.memory_bytes)} are taken"
                + (f" by {listed(held)}" if held else ", and no process is shown for it"),
                remedy="end those processes; where none is shown, one of another container or a "
                "dead one holds it: nvidia-smi, fuser -v /dev/nvidia*",
                where=place(gpu),
            )
        )
    most = max((gpu.used_bytes or 0 for gpu in known(host.gpus).gpus), default=0)
    return found(*faults, good=f"at most {gib(most)} in use", most_used_bytes=most)


def driver_version(host: Host, need: Need) -> Verdict:
    """The driver is new enough for the CUDA release that the engine's images carry."""
    gpus = known(host.gpus)
    if gpus.gpus and gpus.gpus[0].vendor != "nvidia":
        return skipped("this is for NVIDIA's driver")
    major = re.match(r"\d+", gpus.driver)
    cuda = _cuda_major(host)
    least = DRIVER_OF_CUDA[cuda]
    if major is None:
        return skipped(f"the driver calls itself {gpus.driver!r}")
    faults = [
        Fault(
            message=f"driver {gpus.driver} is older than {least}, which CUDA {cuda} needs",
            remedy=f"install driver {least} or newer"
            + (
                ", or use an image for CUDA 12 (SGLang's -cu12 tags)"
                if cuda > min(DRIVER_OF_CUDA)
                else ""
            ),
            where="driver",
        )
    ]
    return found(
        *(faults if int(major[0]) < least else ()),
        good=f"driver {gpus.driver} runs CUDA {cuda}",
        driver=gpus.driver,
        least_driver=least,
    )


def _cuda_major(host: Host) -> int:
    """CUDA 12 where the interpreter has its libraries and not those of 13; else the images' 13."""
    installed = host.software.distributions if host.software else {}
    old = "nvidia-nccl-cu12" in installed and "nvidia-nccl-cu13" not in installed
    return min(DRIVER_OF_CUDA) if old else max(DRIVER_OF_CUDA)


def place(gpu: HostGpu) -> str:
    """A GPU by its number and bus address."""
    return f"GPU {gpu.index} ({gpu.bus_id})"


GPU_RULES: Final = (
    Rule(
        id="gpu-present",
        group=GROUP,
        severity=Severity.ERROR,
        sections=(),
        source="engines serve these models on GPUs only",
        judge=present,
        also=("gpus", "devices"),
    ),
    Rule(
        id="gpu-driver-answers",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("devices",),
        source="NVIDIA Xid catalogue, docs.nvidia.com/deploy/xid-errors",
        judge=driver_answers,
        also=("gpus",),
    ),
    Rule(
        id="gpu-device-access",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("devices",),
        source="ROCm installation guide; NVIDIA driver manual",
        judge=device_access,
    ),
    Rule(
        id="gpu-count",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("gpus",),
        source="the hardware profile",
        judge=count,
        also=("environment",),
    ),
    Rule(
        id="gpu-kind",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("gpus",),
        source="the hardware profile",
        judge=kind,
    ),
    Rule(
        id="gpu-supported",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("gpus",),
        source="vllm#51964, vllm#31936, vllm#32141, vllm#28923; the engine profile",
        judge=supported,
    ),
    Rule(
        id="gpu-weights-fit",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("gpus",),
        source="the model's inventory; the driver's memory",
        judge=weights_fit,
    ),
    Rule(
        id="gpu-memory-free",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("gpus",),
        source="vLLM 0.33.0 v1/worker: free memory below what is requested stops the start",
        judge=memory_free,
    ),
    Rule(
        id="gpu-driver",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("gpus",),
        source="vllm-project/recipes, Kimi-K3: CUDA 13 image, r580 driver; CUDA 12 and 13 "
        "release notes",
        judge=driver_version,
        also=("software",),
    ),
)
