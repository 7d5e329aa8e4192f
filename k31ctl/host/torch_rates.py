"""What torch reaches on this machine's devices, asked of a program that may fail by itself."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import k31ctl
from k31ctl.core.measured_host import GpuRates, Rate
from k31ctl.host.disk_rate import Unmeasured
from k31ctl.host.memory_rates import rate
from k31ctl.values import frozen

PROGRAM: Final = Path(k31ctl.__file__).parent / "engine" / "device_rates.py"
_MOST_S: Final = 300.0


@frozen
class TorchRates:
    """The processor's bf16 product, and the GPUs' rates where there are any."""

    bf16: Rate
    gpus: GpuRates | None


def torch_rates() -> TorchRates:
    """Rates by torch; raises Unmeasured where it is not installed or does not answer."""
    try:
        done = subprocess.run(
            [sys.executable, "-B", str(PROGRAM)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_MOST_S,
        )
    except subprocess.TimeoutExpired:
        raise Unmeasured(f"torch did not answer within {_MOST_S:.0f} s") from None
    told = done.stderr.decode("utf-8", "replace")
    if "No module named 'torch'" in told:
        raise Unmeasured("torch is not installed: pip install 'k31ctl[engine]'")
    try:
        return _read(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError):
        last = next((line for line in reversed(told.splitlines()) if line.strip()), "no answer")
        raise Unmeasured(f"torch failed: {last.strip()[:120]}") from None


def _read(found: Any) -> TorchRates:
    by = f"with torch {found['torch']}"
    gpus = found["gpus"]
    return TorchRates(
        bf16=_rate(found["cpu"]["bf16"], f"a bf16 product {by} on the processor"),
        gpus=None
        if gpus is None
        else GpuRates(
            name=str(gpus["name"]),
            num_gpus=int(gpus["count"]),
            copy=_rate(gpus["copy"], f"a copy inside the slowest GPU {by}, read and written"),
            matmul={
                name: _rate(values, f"a {name} product on the slowest GPU {by}")
                for name, values in gpus["matmul"].items()
            },
            link=_rate(gpus["link"], f"a copy from GPU 0 to GPU 1 {by}") if gpus["link"] else None,
            host_link=_rate(gpus["host_link"], f"a copy from pinned memory to GPU 0 {by}"),
        ),
    )


def _rate(values: Sequence[float], how: str) -> Rate:
    return rate([float(value) for value in values], f"{how}, the median of {len(values)}")
