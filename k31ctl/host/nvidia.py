"""NVIDIA's GPUs as nvidia-smi tells of them, or NVML where there is no nvidia-smi.

Follows the text of ``nvidia-smi -q`` from drivers 535 to 610, whose sections moved: event reasons
were once throttle reasons, and uncorrectable SRAM errors once were one number.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from k31ctl.core.host import (
    GpuProcess,
    Gpus,
    HostGpu,
    PcieLink,
    Why,
)
from k31ctl.host.probe import Missed, Probe, whole
from k31ctl.outside_json import parsed

NVML_CHILD: Final = Path(__file__).with_name("nvml_child.py")
_GPU: Final = re.compile(r"GPU ([0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\.[0-9A-Fa-f])")
_COLON: Final = re.compile(r"\s:")
_UNITS: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SLOWDOWNS: Final = (
    "HW Slowdown",
    "HW Thermal Slowdown",
    "HW Power Brake Slowdown",
    "SW Thermal Slowdown",
)
_CLOCKS_SET: Final = "Applications Clocks Setting"
_REPAIRS: Final = (
    "Remapping Failure Occurred",
    "Pending",
    "Channel Repair Pending",
    "TPC Repair Pending",
    "Unrepairable Memory",
    "SRAM Threshold Exceeded",
)
_Entry = tuple[tuple[str, ...], str]


def nvidia_gpus(probe: Probe) -> Gpus:
    """GPUs by ``nvidia-smi -q``, or by NVML in a process of its own; raises Missed."""
    if probe.has("nvidia-smi"):
        return parse_query(probe.run("nvidia-smi", "-q"))
    if not probe.exists("/dev/nvidiactl"):
        raise Missed(Why.ABSENT, "neither nvidia-smi nor a device of NVIDIA's driver is here")
    try:
        told = probe.run(sys.executable, "-I", "-B", str(NVML_CHILD))
    except Missed as missed:
        raise _nvml_missed(missed) from None
    return parse_nvml(told)


def _nvml_missed(missed: Missed) -> Missed:
    """What NVML said, without the command that asked it."""
    if missed.kind is Why.SLOW:
        return Missed(Why.SLOW, "NVML did not answer in time")
    said = missed.why.rpartition(": ")[2]
    if "Library Not Found" in said or "No module named" in said:
        return Missed(Why.ABSENT, "neither nvidia-smi nor NVML's library is here")
    return Missed(Why.FAILED, f"NVML: {said}")


def parse_query(text: str) -> Gpus:
    """What ``nvidia-smi -q`` printed; raises Missed where it lists no GPU in that form."""
    head: dict[str, str] = {}
    gpus: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        found = _GPU.fullmatch(line.strip()) if not line.startswith(" ") else None
        if found:
            gpus.append((found[1], []))
        elif gpus:
            gpus[-1][1].append(line)
        elif " : " in line:
            key, _, value = line.partition(" : ")
            head[key.strip()] = value.strip()
    if "Driver Version" not in head:
        raise Missed(Why.FAILED, "nvidia-smi -q prints something else than it should")
    return Gpus(
        gpus=tuple(_gpu(index, bus_id, lines) for index, (bus_id, lines) in enumerate(gpus)),
        driver=head["Driver Version"],
        cuda=head.get("CUDA Version"),
        told_by="nvidia-smi -q",
    )


def _gpu(index: int, bus_id: str, lines: Sequence[str]) -> HostGpu:
    entries = list(_entries(lines))
    told = _Told(entries)
    return HostGpu(
        index=index,
        vendor="nvidia",
        name=told.at("Product Name") or "unknown",
        bus_id=short_bus_id(bus_id),
        memory_bytes=told.size("FB Memory Usage", "Total") or 0,
        used_bytes=told.size("FB Memory Usage", "Used"),
        persistence=_truth(told.at("Persistence Mode"), yes="Enabled", no="Disabled"),
        partition="MIG" if told.at("MIG Mode", "Current") == "Enabled" else "",
        ecc_on=_truth(
            told.at("ECC Mode", "Current") or told.at("Ecc Mode", "Current"),
            yes="Enabled",
            no="Disabled",
        ),
        ecc_uncorrected=_uncorrected(entries),
        repairs=_repairs(entries),
        recovery=_unless_quiet(told.at("GPU Recovery Action")),
        link=_link(told),
        slowed_by=_slowed_by(entries),
        power_limit_w=_watts(told, "Current Power Limit") or _watts(told, "Power Limit"),
        default_power_limit_w=_watts(told, "Default Power Limit"),
        fabric=_fabric(told),
        processes=_processes(entries),
    )


def _entries(lines: Sequence[str]) -> Iterator[_Entry]:
    """Every ``key : value`` with the headings above it, which indentation tells."""
    above: list[tuple[int, str]] = []
    for line in lines:
        depth, text = len(line) - len(line.lstrip(" ")), line.strip()
        if not text or text.startswith(":"):
            continue
        colon = _COLON.search(text)
        key = (text if colon is None else text[: colon.start()]).rstrip()
        while above and above[-1][0] >= depth:
            above.pop()
        if colon is not None:
            yield (*(heading for _, heading in above), key), text[colon.end() :].strip()
        above.append((depth, key))


class _Told:
    """Entries by their path; the first of several counts."""

    def __init__(self, entries: Sequence[_Entry]) -> None:
        self._found: dict[tuple[str, ...], str] = {}
        for path, value in entries:
            self._found.setdefault(path, value)

    def at(self, *path: str) -> str:
        """A value, empty where there is none or it says N/A."""
        value = self._found.get(path, "")
        return "" if value in ("N/A", "[N/A]", "Not Supported") else value

    def size(self, *path: str) -> int | None:
        """A value such as ``275040 MiB`` in bytes."""
        return size(self.at(*path))

    def under(self, *keys: str) -> str:
        """The first value whose path ends so."""
        ends = (v for path, v in self._found.items() if path[-len(keys) :] == keys)
        return next((v for v in ends if v != "N/A"), "")


def size(text: str) -> int | None:
    """Bytes of ``275040 MiB``; None where it is no size."""
    number, _, unit = text.partition(" ")
    value = whole(number)
    return None if value is None or unit not in _UNITS else value * _UNITS[unit]


def _truth(text: str, *, yes: str, no: str) -> bool | None:
    return {yes: True, no: False}.get(text)


def _unless_quiet(text: str) -> str:
    return "" if text in ("", "None", "No") else text


def _uncorrected(entries: Sequence[_Entry]) -> int | None:
    """Uncorrectable errors since the driver was loaded; None where it does not count them."""
    counts = [
        whole(value)
        for path, value in entries
        if path[:2] == ("ECC Errors", "Volatile")
        and "Uncorrectable" in path[-1]
        and path[-1] != "Uncorrectable SRAM Sources"
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _repairs(entries: Sequence[_Entry]) -> tuple[str, ...]:
    found = []
    for path, value in entries:
        if path[-1] not in _REPAIRS or value != "Yes":
            continue
        about = path[-2] if path[-1] == "Pending" and len(path) > 1 else ""
        if path[-1] == "Pending" and about != "Remapped Rows":
            continue
        found.append(f"{about} {path[-1]}".strip())
    return tuple(found)


def _slowed_by(entries: Sequence[_Entry]) -> tuple[str, ...]:
    return tuple(
        path[-1]
        for path, value in entries
        if path[0] in ("Clocks Event Reasons", "Clocks Throttle Reasons")
        and value == "Active"
        and path[-1] in (*_SLOWDOWNS, _CLOCKS_SET)
    )


def _watts(told: _Told, key: str) -> float | None:
    number, _, unit = told.under(key).partition(" ")
    try:
        return float(number) if unit == "W" else None
    except ValueError:
        return None


def _fabric(told: _Told) -> str:
    parts = [told.at("Fabric", "State"), told.at("Fabric", "Status")]
    return ", ".join(part for part in parts if part)


def _link(told: _Told) -> PcieLink | None:
    at = ("PCI", "GPU Link Info")
    width = whole(told.at(*at, "Link Width", "Current"))
    most = whole(told.at(*at, "Link Width", "Max"))
    if width is None or most is None:
        return None
    generation = (*at, "PCIe Generation")
    return PcieLink(
        width=width,
        max_width=most,
        generation=whole(told.at(*generation, "Current")),
        max_generation=whole(told.at(*generation, "Device Max") or told.at(*generation, "Max")),
        host_generation=whole(told.at(*generation, "Host Max")),
    )


def _processes(entries: Sequence[_Entry]) -> tuple[GpuProcess, ...]:
    found: list[dict[str, str]] = []
    for path, value in entries:
        if "Processes" not in path:
            continue
        if path[-1] == "Process ID":
            found.append({})
        if found:
            found[-1][path[-1]] = value
    return tuple(
        GpuProcess(
            pid=whole(told.get("Process ID", "")) or 0,
            name=told.get("Name", "")[:80],
            memory_bytes=size(told.get("Used GPU Memory", "")),
        )
        for told in found
    )


def short_bus_id(text: str) -> str:
    """A bus address as sysfs writes it: four digits of domain, lower case."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if rest.count(":") else text.lower()


def parse_nvml(text: str) -> Gpus:
    """What the NVML process printed; raises Missed where that is not its form."""
    try:
        told: Any = parsed(text)
        return Gpus(
            gpus=tuple(_of_nvml(index, entry) for index, entry in enumerate(told["gpus"])),
            driver=str(told["driver"]),
            told_by="NVML",
            cuda=None,
        )
    except (ValueError, KeyError, TypeError):
        raise Missed(Why.FAILED, "NVML answers in a form that is not known") from None


def _of_nvml(index: int, told: Mapping[str, Any]) -> HostGpu:
    return HostGpu(
        index=index,
        vendor="nvidia",
        name=str(told["name"]),
        bus_id=short_bus_id(str(told["bus_id"])),
        memory_bytes=int(told["memory_bytes"]),
        used_bytes=int(told["used_bytes"]),
        persistence=told.get("persistence"),
        partition="MIG" if told.get("mig") else "",
        ecc_on=told.get("ecc_on"),
        ecc_uncorrected=told.get("ecc_uncorrected"),
        processes=tuple(
            GpuProcess(pid=int(pid), name="", memory_bytes=used) for pid, used in told["processes"]
        ),
    )
