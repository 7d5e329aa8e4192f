"""This machine's rates, one after another, so that none disturbs the next."""

import os
import platform
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from k31ctl.core.measured_host import HostRates, Rate
from k31ctl.host.disk_rate import Unmeasured, disk_rate
from k31ctl.host.loopback_rate import loopback_rate
from k31ctl.host.matmul_rates import matmul_rates
from k31ctl.host.memory_rates import memory_rates
from k31ctl.host.system import filesystem_of
from k31ctl.host.torch_rates import torch_rates

REPEATS: Final = 5


def host_rates(folder: Path, *, num_bytes: int, asks_torch: bool) -> Iterator[str | HostRates]:
    """Measure; says what comes next, and last what was found."""
    clock = time.perf_counter
    psutil: Any = import_module("psutil")
    memory = psutil.virtual_memory()
    cores = len(os.sched_getaffinity(0))
    not_measured: dict[str, str] = {}

    def attempt(name: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Unmeasured as why:
            not_measured[name] = str(why)
            return None

    yield "memory"
    read, copy = memory_rates(
        num_cores=cores, free_bytes=memory.available, repeats=REPEATS, clock=clock
    )
    yield "matrix products"
    matmul: dict[str, Rate] = (
        attempt("matmul", lambda: matmul_rates(repeats=REPEATS, clock=clock)) or {}
    )
    gpus = None
    if asks_torch:
        yield "torch"
        torch = attempt("gpus", torch_rates)
        if torch is not None:
            matmul["bf16"], gpus = torch.bf16, torch.gpus
            if gpus is None:
                not_measured["gpus"] = "torch finds none"
    else:
        not_measured["gpus"] = "not asked for: --no-torch"
    yield "disk"
    disk = attempt(
        "disk",
        lambda: disk_rate(
            folder,
            num_bytes=num_bytes,
            repeats=REPEATS,
            filesystem=filesystem_of(str(folder.resolve()), _mounts()),
            clock=clock,
        ),
    )
    yield "loopback"
    yield HostRates(
        processor=_processor(),
        num_cores=cores,
        memory_bytes=int(memory.total),
        read=read,
        copy=copy,
        matmul=matmul,
        disk=disk,
        disk_folder=str(folder),
        disk_capacity_bytes=_capacity(folder),
        loopback=loopback_rate(repeats=REPEATS, clock=clock),
        gpus=gpus,
        not_measured=not_measured,
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    names = [line.partition(":")[2] for line in text.splitlines() if line.startswith("model name")]
    return " ".join(names[0].split()) if names else platform.machine()


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _capacity(folder: Path) -> int:
    try:
        room = os.statvfs(folder)
    except OSError:
        return 0
    return room.f_frsize * room.f_blocks
