"""Prints what NVML says as JSON; runs on its own, so that a driver that hangs can be left."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pynvml


def main() -> None:
    """Print every GPU, or end with exit code 1 and NVML's own words."""
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        gpus = [_gpu(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps({"driver": driver, "gpus": gpus}))


def _gpu(handle: Any) -> dict[str, Any]:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    mig = _or_none(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    processes = _or_none(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
    return {
        "name": _text(pynvml.nvmlDeviceGetName(handle)),
        "bus_id": _text(pynvml.nvmlDeviceGetPciInfo(handle).busId),
        "memory_bytes": memory.total,
        "used_bytes": memory.used,
        "persistence": _or_none(lambda: bool(pynvml.nvmlDeviceGetPersistenceMode(handle))),
        "mig": bool(mig),
        "ecc_on": _or_none(lambda: bool(pynvml.nvmlDeviceGetEccMode(handle)[0])),
        "ecc_uncorrected": _or_none(
            lambda: pynvml.nvmlDeviceGetTotalEccErrors(
                handle,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            )
        ),
        "processes": [[process.pid, process.usedGpuMemory] for process in processes],
    }


def _or_none(asked: Callable[[], Any]) -> Any:
    """What NVML answers, or None for what this GPU does not have."""
    try:
        return asked()
    except pynvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
