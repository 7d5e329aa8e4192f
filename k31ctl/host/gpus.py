"""The GPUs of this machine through NVML, as a node of the catalog."""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, Protocol, cast

from k31ctl.core.hardware import Node
from k31ctl.errors import InputError
from k31ctl.values import frozen

_WHERE: Final = "this machine"
_CHOOSE: Final = "name the hardware instead, such as --on 8x-b300"
_MEMORY_SLACK: Final = 0.08  # error correction on GDDR takes 6 %; a slice of a GPU takes far more


class Nvml(Protocol):
    """What this module asks of ``pynvml``."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...  # noqa: D102, N802
    def nvmlShutdown(self) -> None: ...  # noqa: D102, N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: D102, N802
    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> Any: ...  # noqa: D102, N802
    def nvmlDeviceGetName(self, handle: Any, /) -> str | bytes: ...  # noqa: D102, N802
    def nvmlDeviceGetMemoryInfo(self, handle: Any, /) -> Any: ...  # noqa: D102, N802


@frozen
class _Seen:
    name: str
    memory_bytes: int


def local_node(
    candidates: Sequence[Node], *, host_memory_bytes: int | None = None, nvml: Nvml | None = None
) -> Node:
    """Return this machine as the candidate with the same GPU, with its own count and memory.

    Rates and links are the candidate's: NVML reports what is there, not how fast it is.
    ``host_memory_bytes`` is asked of the operating system where it is not given.
    """
    gpus = _gpus(nvml or cast("Nvml", importlib.import_module("pynvml")))
    seen = _one_kind(gpus)
    found = _candidate(seen, len(gpus), candidates)
    domain = found.scale_up_domain_gpus
    return replace(
        found,
        id="this",
        name=f"this machine, {len(gpus)} x {seen.name}",
        gpu=replace(found.gpu, memory_bytes=seen.memory_bytes),
        num_gpus=len(gpus),
        scale_up=found.scale_up if min(domain, len(gpus)) > 1 else None,
        scale_up_domain_gpus=min(domain, len(gpus)),
        host_memory_bytes=_host_memory() if host_memory_bytes is None else host_memory_bytes,
        disks=None,
        notes=(*found.notes, f"rates and links are those of {found.id}"),
    )


def _gpus(nvml: Nvml) -> list[_Seen]:
    with _opened(nvml):
        try:
            count = nvml.nvmlDeviceGetCount()
            seen = [_seen(nvml, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
        except nvml.NVMLError as error:
            raise InputError(
                f"the NVIDIA driver did not answer: {error}",
                where=_WHERE,
                remedy=f"see what nvidia-smi says, or {_CHOOSE}",
            ) from None
    if not seen:
        raise _none_found("the driver lists none")
    return seen


@contextmanager
def _opened(nvml: Nvml) -> Iterator[None]:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise _none_found(str(error)) from None
    try:
        yield
    finally:
        nvml.nvmlShutdown()


def _seen(nvml: Nvml, handle: Any) -> _Seen:
    name = nvml.nvmlDeviceGetName(handle)
    return _Seen(
        name=name.decode() if isinstance(name, bytes) else name,
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
    )


def _one_kind(gpus: Sequence[_Seen]) -> _Seen:
    """Return the kind of all GPUs, with the memory of the smallest."""
    names = sorted({gpu.name for gpu in gpus})
    smallest = min(gpus, key=lambda gpu: gpu.memory_bytes)
    largest = max(gpu.memory_bytes for gpu in gpus)
    if len(names) > 1 or largest - smallest.memory_bytes > _MEMORY_SLACK * largest:
        raise InputError(
            f"the GPUs are not alike: {', '.join(names)}",
            where=_WHERE,
            remedy=f"choose one kind with CUDA_VISIBLE_DEVICES for the engine, and {_CHOOSE}",
        )
    return smallest


def _candidate(seen: _Seen, count: int, candidates: Sequence[Node]) -> Node:
    alike = [node for node in candidates if node.gpu.name == seen.name]
    if not alike:
        raise InputError(
            f"no hardware profile has the GPU {seen.name!r}",
            where=_WHERE,
            remedy=f"write one and pass --profiles DIR, or {_CHOOSE}",
        )
    found = min(alike, key=lambda node: (abs(node.num_gpus - count), node.id))
    expected = found.gpu.memory_bytes
    if abs(seen.memory_bytes - expected) > _MEMORY_SLACK * expected:
        raise InputError(
            f"{seen.name} reports {seen.memory_bytes} bytes, {found.id} says {expected}",
            where=_WHERE,
            remedy=f"use whole GPUs rather than slices of them, or {_CHOOSE}",
        )
    return found


def _none_found(why: str) -> InputError:
    return InputError(
        f"no NVIDIA GPU was found on this machine: {why}", where=_WHERE, remedy=_CHOOSE
    )


def _host_memory() -> int:
    psutil = importlib.import_module("psutil")
    return int(psutil.virtual_memory().total)
