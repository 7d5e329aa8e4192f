"""A whole machine, section by section and all at once, each within its own time."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from k31ctl.core.host import Gpus, Host, MissedSection, Topology, Why
from k31ctl.host import network as net
from k31ctl.host import system as machine
from k31ctl.host.amd import amd_gpus
from k31ctl.host.containers import containers
from k31ctl.host.devices import devices, kernel_log
from k31ctl.host.nvidia import nvidia_gpus
from k31ctl.host.nvidia_links import topology
from k31ctl.host.probe import Missed, Probe
from k31ctl.host.software import software
from k31ctl.host.weights import weights
from k31ctl.values import frozen

# Variables that decide which interface, back end or cache an engine uses.
VARIABLES: Final = (
    "CUDA_VISIBLE_DEVICES",
    "FLASHINFER_WORKSPACE_BASE",
    "GLOO_SOCKET_IFNAME",
    "HIP_VISIBLE_DEVICES",
    "HOME",
    "NCCL_DMABUF_ENABLE",
    "NCCL_IB_HCA",
    "NCCL_SOCKET_IFNAME",
    "ROCR_VISIBLE_DEVICES",
    "RUNAI_STREAMER_MEMORY_LIMIT",
    "SGLANG_HOST_IP",
    "TRITON_CACHE_DIR",
    "VLLM_HOST_IP",
    "VLLM_NIXL_SIDE_CHANNEL_HOST",
    "VLLM_USE_NCCL_SYMM_MEM",
)
_LATE_S: Final = 1.0  # beyond a tool's own time: to end it and to read what it said


@frozen
class Asked:
    """What beyond the machine itself shall be looked at."""

    weights: Path | None = None
    interpreter: str | None = None
    peers: tuple[tuple[str, int], ...] = ()


def describe(probe: Probe, asked: Asked, *, sections: Collection[str]) -> Host:
    """The machine as far as the sections say; one that is late is left out, with the reason."""
    answers = _answers(probe, asked, sections)
    found: dict[str, Any] = {}
    missed = []
    for name, answer in answers.items():
        if isinstance(answer, Missed):
            missed.append(MissedSection(section=name, kind=answer.kind, why=answer.why))
        else:
            found[name] = answer
    return Host(**found, missed=tuple(missed))


def _answers(probe: Probe, asked: Asked, sections: Collection[str]) -> dict[str, object]:
    """Every section's value, or why there is none, in the order of their names."""
    questions = {k: v for k, v in _questions(asked).items() if k in sections}
    got: dict[str, object] = {}

    def answer(name: str, question: Callable[[Probe], object]) -> None:
        try:
            got[name] = question(probe)
        except Missed as missed:
            got[name] = missed
        except (OSError, ValueError, ArithmeticError) as error:
            got[name] = Missed(Why.FAILED, f"not understood: {error}"[:160])

    threads = {
        name: threading.Thread(target=answer, args=(name, question), daemon=True)
        for name, question in questions.items()
    }
    until = time.monotonic() + probe.timeout_s + _LATE_S
    try:
        for thread in threads.values():
            thread.start()
        for thread in threads.values():
            thread.join(max(0.0, until - time.monotonic()))
    finally:
        probe.processes.end_all()
    late = f"no answer within {probe.timeout_s:g} s"
    return {
        name: got[name] if name in got else Missed(Why.SLOW, late) for name in sorted(questions)
    }


def _questions(asked: Asked) -> Mapping[str, Callable[[Probe], object]]:
    found: dict[str, Callable[[Probe], object]] = {
        "system": machine.system,
        "devices": devices,
        "gpus": gpus,
        "topology": links,
        "kernel_log": kernel_log,
        "fabric_manager": net.fabric_manager,
        "rdma": net.rdma,
        "memory": machine.memory,
        "shm": machine.shm,
        "limits": machine.limits,
        "containers": containers,
        "clock": net.clock,
        "network": net.network,
        "environment": environment,
        "home_filesystem": machine.home_filesystem,
        "software": lambda probe: software(probe, asked.interpreter),
    }
    if asked.weights is not None:
        folder = asked.weights
        found["weights"] = lambda probe: weights(probe, folder)
    if asked.peers:
        addresses: Sequence[tuple[str, int]] = asked.peers
        found["peers"] = lambda probe: net.peers(addresses, timeout_s=probe.timeout_s)
    return found


def environment(probe: Probe) -> dict[str, str]:
    """Those variables of this process that engines read."""
    return {name: probe.environment[name] for name in VARIABLES if name in probe.environment}


def gpus(probe: Probe) -> Gpus:
    """The GPUs of whichever vendor's are on the bus, or whose tool is here; raises Missed."""
    vendors = {gpu.vendor for gpu in devices(probe).gpus}
    if "amd" in vendors and "nvidia" not in vendors:
        return amd_gpus(probe)
    if not vendors and not probe.has("nvidia-smi") and _has_amd_tool(probe):
        return amd_gpus(probe)
    return nvidia_gpus(probe)


def links(probe: Probe) -> Topology:
    """Links between NVIDIA's GPUs; raises Missed for others, whose tools are not asked."""
    if not probe.has("nvidia-smi"):
        raise Missed(Why.ABSENT, "nvidia-smi is not installed")
    return topology(probe)


def _has_amd_tool(probe: Probe) -> bool:
    return probe.has("amd-smi") or probe.has("rocm-smi")
