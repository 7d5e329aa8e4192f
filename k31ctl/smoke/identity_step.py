"""Step identity: what computes here, and whether torch was built for it."""

import platform

import torch

from k31ctl.core.host import Host
from k31ctl.core.ladder import Measure, measure
from k31ctl.host.free_memory import free_host_bytes, this_machine
from k31ctl.smoke.session import Found, Session
from k31ctl.units import counted, show_bytes

# B300 and GB300: older drivers and toolkits do not know them.
_SM_103 = (10, 3)
_LEAST_DRIVER, _LEAST_CUDA = 580, 13


def identity(session: Session) -> Found:
    """The device, its driver and memory, and counters of its errors."""
    host = session.host()
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    chosen = session.chosen[2]
    free = free_host_bytes(this_machine())
    if session.device.type == "cpu":
        system = host.system
        processor = system.processor if system and system.processor else platform.machine()
        detail = (
            f"{processor}, {counted(torch.get_num_threads(), 'thread')}, "
            f"{torch.backends.cpu.get_cpu_capability()}; {versions}; {show_bytes(free)} free"
        )
        return Found(detail=detail, notes=chosen)
    return _cuda(session, host, versions, chosen)


def _cuda(session: Session, host: Host, versions: str, chosen: tuple[str, ...]) -> Found:
    properties = torch.cuda.get_device_properties(session.device)
    capability = torch.cuda.get_device_capability(session.device)
    free, total = torch.cuda.mem_get_info(session.device)
    driver = host.gpus.driver if host.gpus else "unknown"
    detail = (
        f"{properties.name}, compute capability {capability[0]}.{capability[1]}, driver {driver}, "
        f"CUDA {torch.version.cuda}; {versions}; {show_bytes(free)} of {show_bytes(total)} free"
    )
    faults = []
    if not built_for(torch.cuda.get_arch_list(), capability):
        known = ", ".join(torch.cuda.get_arch_list())
        faults.append(f"this torch has no code for sm_{capability[0]}{capability[1]}: {known}")
    if capability == _SM_103:
        faults += _too_old("driver", driver, _LEAST_DRIVER)
        faults += _too_old("CUDA", str(torch.version.cuda), _LEAST_CUDA)
    return Found(detail=detail, measures=error_counters(host), notes=chosen, faults=tuple(faults))


def built_for(architectures: list[str], capability: tuple[int, int]) -> bool:
    """Whether a torch has code for a device, or an older PTX to make it from.

    Code for one minor version runs on later ones of the same major version.
    """
    major, minor = capability
    for name in architectures:
        kind, _, digits = name.rstrip("af").partition("_")
        if not digits.isdigit():
            continue
        its = (int(digits[:-1]), int(digits[-1]))
        if kind == "compute" and its <= capability:
            return True
        if kind == "sm" and its[0] == major and its[1] <= minor:
            return True
    return False


def error_counters(host: Host) -> tuple[Measure, ...]:
    """Uncorrected memory errors, and lines of the kernel's log about GPUs, where they are told."""
    found = []
    if host.gpus is not None:
        errors = sum(gpu.ecc_uncorrected or 0 for gpu in host.gpus.gpus)
        found.append(measure("uncorrected memory errors", errors, at_most=0))
    if host.kernel_log is not None:
        found.append(measure("GPU faults in the kernel's log", len(host.kernel_log)))
    return tuple(found)


def _too_old(name: str, text: str, least: int) -> list[str]:
    first = text.partition(".")[0]
    if first.isdigit() and int(first) < least:
        return [f"{name} {text} is older than {least}, which this GPU needs"]
    return []
