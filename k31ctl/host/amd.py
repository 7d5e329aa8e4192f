"""AMD's GPUs as amd-smi tells of them, else rocm-smi, else the kernel itself.

Follows ``amd-smi static|metric|process --json`` of ROCm 6.4 to 7.2, which wrap the list of GPUs in
``gpu_data`` since 7, and ``rocm-smi --json`` since 6.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from k31ctl.core.host import GpuProcess, Gpus, HostGpu, PcieLink, Why
from k31ctl.host.nvidia import short_bus_id
from k31ctl.host.probe import Missed, Probe, whole
from k31ctl.outside_json import parsed

_UNITS: Final = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_GENERATIONS: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
# Device numbers of the PCI bus: name, instruction set.
_KNOWN: Final = {
    "0x74a1": ("AMD Instinct MI300X", "gfx942"),
    "0x74a5": ("AMD Instinct MI325X", "gfx942"),
    "0x75a0": ("AMD Instinct MI350X", "gfx950"),
    "0x75a3": ("AMD Instinct MI355X", "gfx950"),
}
_CARD: Final = re.compile(r"card\d+")
_WHOLE: Final = ("", "SPX", "N/A")


def amd_gpus(probe: Probe) -> Gpus:
    """GPUs by amd-smi, else by rocm-smi, else out of /sys; raises Missed."""
    if probe.has("amd-smi"):
        return parse_amd_smi(
            probe.run("amd-smi", "static", "--json"),
            metric=probe.run("amd-smi", "metric", "--json"),
            process=probe.run("amd-smi", "process", "--json"),
        )
    if not probe.has("rocm-smi"):
        return gpus_of_sysfs(probe)
    return parse_rocm_smi(
        probe.run(
            "rocm-smi",
            "--showproductname",
            "--showmeminfo",
            "vram",
            "--showbus",
            "--showdriverversion",
            "--showcomputepartition",
            "--json",
        )
    )


def parse_amd_smi(static: str, *, metric: str, process: str) -> Gpus:
    """What three questions to amd-smi gave; raises Missed where that is not its form."""
    fixed = _listed(static)
    metrics = {_index(entry): entry for entry in _listed(metric)}
    processes = {_index(entry): entry for entry in _listed(process)}
    gpus = [
        _gpu(entry, metrics.get(_index(entry), {}), processes.get(_index(entry), {}))
        for entry in fixed
    ]
    driver = _at(fixed[0], "driver", "version") if fixed else ""
    return Gpus(gpus=tuple(gpus), driver=str(driver or ""), told_by="amd-smi")


def _listed(text: str) -> Sequence[Mapping[str, Any]]:
    told = _json(text, "amd-smi")
    entries = told.get("gpu_data") if isinstance(told, dict) else told
    if not isinstance(entries, list):
        raise Missed(Why.FAILED, "amd-smi answers in a form that is not known")
    return [entry for entry in entries if isinstance(entry, dict)]


def _json(text: str, tool: str) -> Any:
    """The document in a tool's output; a warning may stand before it."""
    starts = [place for place in (text.find("["), text.find("{")) if place >= 0]
    try:
        return parsed(text[min(starts, default=0) :])
    except ValueError:
        raise Missed(Why.FAILED, f"{tool} prints something else than JSON") from None


def _index(entry: Mapping[str, Any]) -> int:
    index = entry.get("gpu")
    return index if isinstance(index, int) else -1


def _at(entry: Any, *path: str) -> Any:
    """A value below nested mappings; None where the path breaks or it says N/A."""
    for key in path:
        entry = entry.get(key) if isinstance(entry, dict) else None
    return None if entry == "N/A" else entry


def _size(value: Any) -> int | None:
    if not isinstance(value, dict):
        return None
    number, unit = value.get("value"), value.get("unit")
    if not isinstance(number, int | float) or not isinstance(unit, str) or unit not in _UNITS:
        return None
    return int(number * _UNITS[unit])


def _number(value: Any) -> float | None:
    found = value.get("value") if isinstance(value, dict) else value
    return float(found) if isinstance(found, int | float) else None


def _gpu(
    fixed: Mapping[str, Any], metric: Mapping[str, Any], process: Mapping[str, Any]
) -> HostGpu:
    index = _index(fixed)
    uncorrected = _at(metric, "ecc", "total_uncorrectable_count")
    mode = str(
        _at(fixed, "partition", "compute_partition")
        or _at(fixed, "partition", "accelerator_partition")
        or ""
    )
    limit = _at(fixed, "limit", "ppt0", "socket_power_limit") or _at(fixed, "limit", "socket_power")
    most = _at(fixed, "limit", "ppt0", "max_power_limit") or _at(fixed, "limit", "max_power")
    return HostGpu(
        index=index,
        vendor="amd",
        name=str(_at(fixed, "asic", "market_name") or "unknown"),
        bus_id=short_bus_id(str(_at(fixed, "bus", "bdf") or "")),
        memory_bytes=_size(_at(metric, "mem_usage", "total_vram"))
        or _size(_at(fixed, "vram", "size"))
        or 0,
        used_bytes=_size(_at(metric, "mem_usage", "used_vram")),
        architecture=_at(fixed, "asic", "target_graphics_version"),
        partition="" if mode in _WHOLE else mode,
        ecc_uncorrected=uncorrected if isinstance(uncorrected, int) else None,
        link=_link(fixed, metric),
        power_limit_w=_number(limit),
        default_power_limit_w=_number(most),
        processes=_processes(process),
    )


def _link(fixed: Mapping[str, Any], metric: Mapping[str, Any]) -> PcieLink | None:
    width, most = _at(metric, "pcie", "width"), _at(fixed, "bus", "max_pcie_width")
    if not (isinstance(width, int) and isinstance(most, int)):
        return None
    return PcieLink(
        width=width,
        max_width=most,
        generation=_GENERATIONS.get(_number(_at(metric, "pcie", "speed")) or 0.0),
        max_generation=_GENERATIONS.get(_number(_at(fixed, "bus", "max_pcie_speed")) or 0.0),
    )


def _processes(entry: Mapping[str, Any]) -> tuple[GpuProcess, ...]:
    listed = entry.get("process_list")
    told = [_at(each, "process_info") for each in listed] if isinstance(listed, list) else []
    return tuple(
        GpuProcess(
            pid=int(each["pid"]),
            name=str(each.get("name") or "")[:80],
            memory_bytes=_size(_at(each, "memory_usage", "vram_mem")),
        )
        for each in told
        if isinstance(each, dict) and isinstance(each.get("pid"), int)
    )


def parse_rocm_smi(text: str) -> Gpus:
    """What rocm-smi printed; raises Missed where that is not its form."""
    told = _json(text, "rocm-smi")
    cards = sorted(
        ((int(key[4:]), card) for key, card in told.items() if _CARD.fullmatch(key))
        if isinstance(told, dict)
        else (),
        key=lambda pair: pair[0],
    )
    if not cards:
        raise Missed(Why.FAILED, "rocm-smi lists no card")
    return Gpus(
        gpus=tuple(_of_rocm(index, card) for index, (_, card) in enumerate(cards)),
        driver=str(_at(told, "system", "Driver version") or ""),
        told_by="rocm-smi",
    )


def _of_rocm(index: int, card: Mapping[str, Any]) -> HostGpu:
    mode = str(card.get("Compute Partition") or "")
    return HostGpu(
        index=index,
        vendor="amd",
        name=str(card.get("Card Series") or card.get("Card series") or "unknown"),
        bus_id=short_bus_id(str(card.get("PCI Bus") or "")),
        memory_bytes=whole(str(card.get("VRAM Total Memory (B)") or "")) or 0,
        used_bytes=whole(str(card.get("VRAM Total Used Memory (B)") or "")),
        architecture=card.get("GFX Version"),
        partition="" if mode in _WHOLE else mode,
    )


def gpus_of_sysfs(probe: Probe) -> Gpus:
    """GPUs that the amdgpu module describes in /sys; raises Missed where it describes none."""
    found = []
    for card in sorted(c for c in probe.names("/sys/class/drm") if _CARD.fullmatch(c)):
        at = f"/sys/class/drm/{card}/device"
        total = probe.number(f"{at}/mem_info_vram_total")
        if probe.line(f"{at}/vendor") != "0x1002" or not total:
            continue
        number, mode = probe.line(f"{at}/device"), probe.line(f"{at}/current_compute_partition")
        name, architecture = _KNOWN.get(number, (f"AMD GPU {number}", None))
        found.append((_slot(probe, at), name, architecture, total, mode, at))
    if not found:
        raise Missed(Why.ABSENT, "neither amd-smi, rocm-smi nor the amdgpu module is here")
    gpus = [
        HostGpu(
            index=index,
            vendor="amd",
            name=name,
            bus_id=slot,
            memory_bytes=total,
            used_bytes=probe.number(f"{at}/mem_info_vram_used"),
            architecture=architecture,
            partition="" if mode in _WHOLE else mode,
            link=_sysfs_link(probe, at),
        )
        for index, (slot, name, architecture, total, mode, at) in enumerate(sorted(found))
    ]
    return Gpus(gpus=tuple(gpus), driver=probe.line("/sys/module/amdgpu/version"), told_by="sysfs")


def _slot(probe: Probe, at: str) -> str:
    """The bus address, out of what the kernel announces of a device."""
    try:
        told = re.search(r"(?m)^PCI_SLOT_NAME=(\S+)$", probe.text(f"{at}/uevent"))
    except Missed:
        return ""
    return told[1] if told else ""


def _sysfs_link(probe: Probe, at: str) -> PcieLink | None:
    width, most = probe.number(f"{at}/current_link_width"), probe.number(f"{at}/max_link_width")
    return None if width is None or most is None else PcieLink(width=width, max_width=most)
