"""GPUs on the PCI bus, their device files, and what the kernel logged about them."""

import os
import re
from typing import Final

from k31ctl.core.host import Devices, KernelFault, PciGpu, Why
from k31ctl.host.probe import Missed, Probe

_VENDORS: Final = {"0x10de": "nvidia", "0x1002": "amd"}
_GPU_CLASSES: Final = ("0x0302", "0x0300", "0x1200")  # 3D, VGA, processing accelerator
_XID: Final = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)(.*)")
_AMDGPU: Final = re.compile(
    r"amdgpu ([0-9a-f]{4}:[0-9a-f:.]+): .*"
    r"(?:uncorrectable|GPU reset begin|ring \S+ timeout|RAS.*poison|Fatal error)",
    re.IGNORECASE,
)
_LOGS: Final = ("/var/log/kern.log", "/var/log/syslog", "/var/log/messages")
_MOST_FAULTS: Final = 200
_LOG_TAIL_BYTES: Final = 2**20


def devices(probe: Probe) -> Devices:
    """GPUs of either vendor on the bus, and their device files that are locked to this user."""
    found = []
    for address in probe.names("/sys/bus/pci/devices"):
        at = f"/sys/bus/pci/devices/{address}"
        vendor = _VENDORS.get(probe.line(f"{at}/vendor"))
        kind = probe.line(f"{at}/class")[:6]
        if vendor is None or kind not in _GPU_CLASSES:
            continue
        node = probe.number(f"{at}/numa_node")
        known = None if node is None or node < 0 else node
        found.append(PciGpu(vendor=vendor, address=address, numa_node=known))
    return Devices(gpus=tuple(found), locked=_locked(probe))


def _locked(probe: Probe) -> tuple[str, ...]:
    """Device files of GPUs that exist and may not be opened for reading and writing."""
    names = [f"/dev/{n}" for n in probe.names("/dev") if re.fullmatch(r"nvidia(\d+|ctl)|kfd", n)]
    if "/dev/kfd" in names:
        names += [f"/dev/dri/{n}" for n in probe.names("/dev/dri") if n.startswith("renderD")]
    return tuple(name for name in names if not os.access(probe.at(name), os.R_OK | os.W_OK))


def kernel_log(probe: Probe) -> tuple[KernelFault, ...]:
    """Faults of GPUs since the boot, by dmesg, the journal or a log file; raises Missed."""
    refused: list[Missed] = []
    for command in (("dmesg",), ("journalctl", "-k", "-b", "--no-pager", "-q", "-n", "20000")):
        try:
            return parse_kernel_log(probe.run(*command))
        except Missed as missed:
            refused.append(missed)
            if missed.kind is Why.SLOW:
                break
    for path in _LOGS:
        if probe.exists(path):
            try:
                return parse_kernel_log(_tail(probe, path))
            except Missed as missed:
                refused.append(missed)
    kinds = {missed.kind for missed in refused}
    kind = Why.ABSENT if kinds == {Why.ABSENT} else Why.DENIED
    raise Missed(kind, "; ".join(missed.why for missed in refused))


def _tail(probe: Probe, path: str) -> str:
    try:
        with probe.at(path).open("rb") as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, end - _LOG_TAIL_BYTES))
            return stream.read(_LOG_TAIL_BYTES).decode("utf-8", errors="replace")
    except OSError:
        raise Missed(Why.DENIED, f"{path} may not be read by this user") from None


def parse_kernel_log(text: str) -> tuple[KernelFault, ...]:
    """Lines with an Xid of NVIDIA's driver, or an error of amdgpu that ends a job."""
    found = []
    for line in text.splitlines():
        if xid := _XID.search(line):
            bus_id = xid[1] if xid[1].count(".") else f"{xid[1]}.0"
            fault = f"Xid {xid[2]}{xid[3]}"[:160]
            found.append(KernelFault(code=int(xid[2]), bus_id=bus_id.lower(), text=fault))
        elif amd := _AMDGPU.search(line):
            found.append(KernelFault(code=0, bus_id=amd[1], text=amd[0][:160]))
    return tuple(found[-_MOST_FAULTS:])
