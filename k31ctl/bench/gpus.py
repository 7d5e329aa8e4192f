"""What the GPUs of this machine drew and did while a server on it was measured."""

from collections.abc import Sequence
from typing import Any, Final

from k31ctl.values import frozen

_MILLI: Final = 1e-3
_PERCENT: Final = 100.0


@frozen
class GpuUse:
    """All GPUs of this machine during a stage, whoever used them.

    ``energy_j`` is of their own counters where they have them, else the mean power times the time;
    ``energy_source`` says which. ``utilisation`` is the share of time in which any kernel ran.
    """

    names: tuple[str, ...]
    energy_j: float
    energy_source: str
    power_mean_w: float
    utilisation_mean: float | None
    output_tokens_per_j: float


class GpuMeter:
    """Reads GPUs through NVML; ``look`` may be called from another thread than the rest."""

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        self._nvml, self._handles = nvml, handles
        self._begun_s = 0.0
        self._energy: list[float] | None = None
        self._power_w: list[float] = []
        self._used: list[float] = []

    def begin(self, now_s: float) -> None:
        """Note where the counters are."""
        self._begun_s, self._power_w, self._used = now_s, [], []
        self._energy = self._counters()

    def look(self) -> None:
        """Note the power and the utilisation of the moment."""
        try:
            self._power_w.append(
                sum(self._nvml.nvmlDeviceGetPowerUsage(h) * _MILLI for h in self._handles)
            )
            shares = [self._nvml.nvmlDeviceGetUtilizationRates(h).gpu for h in self._handles]
            self._used.append(sum(shares) / len(shares) / _PERCENT)
        except self._nvml.NVMLError:
            return

    def end(self, now_s: float, *, output_tokens: int) -> GpuUse | None:
        """Return what was used since the begin; None where neither counters nor power are told."""
        length_s = max(now_s - self._begun_s, 1e-9)
        ended = self._counters()
        if self._energy is not None and ended is not None:
            energy_j = sum(b - a for a, b in zip(self._energy, ended, strict=True))
            source = "counters"
        elif self._power_w:
            energy_j = sum(self._power_w) / len(self._power_w) * length_s
            source = "power times time"
        else:
            return None
        return GpuUse(
            names=tuple(self._name(handle) for handle in self._handles),
            energy_j=energy_j,
            energy_source=source,
            power_mean_w=energy_j / length_s,
            utilisation_mean=sum(self._used) / len(self._used) if self._used else None,
            output_tokens_per_j=output_tokens / energy_j if energy_j > 0 else 0.0,
        )

    def _counters(self) -> list[float] | None:
        read = self._nvml.nvmlDeviceGetTotalEnergyConsumption
        try:
            return [read(handle) * _MILLI for handle in self._handles]
        except self._nvml.NVMLError:
            return None

    def _name(self, handle: Any) -> str:
        try:
            name = self._nvml.nvmlDeviceGetName(handle)
        except self._nvml.NVMLError:
            return "unknown"
        return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def gpu_meter() -> GpuMeter | None:
    """Return a meter of this machine's GPUs; None where NVML finds none."""
    import pynvml  # noqa: PLC0415  slow to import, and needed where the server is on this machine

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(count)]
    except pynvml.NVMLError:
        return None
    return GpuMeter(pynvml, handles) if handles else None


def is_this_machine(host: str) -> bool:
    """Whether an address is one of this machine."""
    import psutil  # noqa: PLC0415  slow to import

    own = {
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
    }
    return host in own or host.startswith("127.") or host == "::1"
