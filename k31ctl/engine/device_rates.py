"""Times what torch reaches on this machine's devices, as JSON; run as a program of its own.

Nothing here is imported by the rest: a machine without torch, or with a driver that hangs, is told
apart by how this program ends.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

REPEATS = 5
CPU_SIZE, GPU_SIZE = 1024, 8192
GPU_BYTES = 2**30
HOST_BYTES = 2**28
LEAST_S = 0.1


def main() -> None:
    """Print rates by device: operations per second, bytes per second, a list for each."""
    found: dict[str, Any] = {"torch": torch.__version__, "gpus": None}
    found["cpu"] = {"bf16": _products("cpu", torch.bfloat16, CPU_SIZE)}
    if torch.cuda.is_available():
        found["gpus"] = _gpus()
    sys.stdout.write(json.dumps(found))


def _gpus() -> dict[str, Any]:
    count = torch.cuda.device_count()
    every = [f"cuda:{index}" for index in range(count)]
    copies = [_copies(device) for device in every]
    products = {
        name: min((_products(device, kind, GPU_SIZE) for device in every), key=sum)
        for name, kind in (("bf16", torch.bfloat16), ("fp16", torch.float16))
    }
    return {
        "name": torch.cuda.get_device_name(0),
        "count": count,
        "copy": min(copies, key=sum),
        "matmul": products,
        "link": _between(every[0], every[1]) if count > 1 else None,
        "host_link": _from_host(every[0]),
    }


def _products(device: str, kind: torch.dtype, size: int) -> list[float]:
    one = torch.full((size, size), 0.5, dtype=kind, device=device)
    two = torch.full((size, size), 0.25, dtype=kind, device=device)
    return _rates(lambda: torch.matmul(one, two), 2.0 * size**3, device)


def _copies(device: str) -> list[float]:
    """Bytes read and written."""
    one = torch.ones(GPU_BYTES, dtype=torch.uint8, device=device)
    two = torch.empty_like(one)
    return _rates(lambda: two.copy_(one), 2.0 * GPU_BYTES, device)


def _between(first: str, second: str) -> list[float]:
    one = torch.ones(GPU_BYTES, dtype=torch.uint8, device=first)
    two = torch.empty(GPU_BYTES, dtype=torch.uint8, device=second)
    return _rates(lambda: two.copy_(one), float(GPU_BYTES), first, second)


def _from_host(device: str) -> list[float]:
    one = torch.ones(HOST_BYTES, dtype=torch.uint8).pin_memory()
    two = torch.empty(HOST_BYTES, dtype=torch.uint8, device=device)
    return _rates(lambda: two.copy_(one, non_blocking=True), float(HOST_BYTES), device)


def _rates(work: Callable[[], object], amount: float, *devices: str) -> list[float]:
    """Amount per second, several times; the first run warms up and is not counted."""
    found = []
    for _ in range(REPEATS + 1):
        _wait(devices)
        begun, times = time.perf_counter(), 0
        while times == 0 or time.perf_counter() - begun < LEAST_S:
            work()
            _wait(devices)
            times += 1
        found.append(times * amount / (time.perf_counter() - begun))
    return found[1:]


def _wait(devices: tuple[str, ...]) -> None:
    for device in devices:
        if device != "cpu":
            torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
