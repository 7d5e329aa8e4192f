"""A machine of files: a folder with its /proc, /sys and /dev, and tools that print recordings."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from k31ctl.host.probe import Probe, Processes

DATA = Path(__file__).parents[1] / "data" / "hosts"
SLEEP = shutil.which("sleep") or "/bin/sleep"
CAT = shutil.which("cat") or "/bin/cat"
B300 = "NVIDIA B300 SXM6 AC"
_HEALTHY = {
    "name": B300,
    "persistence": "Enabled",
    "mig": "Disabled",
    "recovery": "None",
    "width": "16x",
    "slowdown": "Not Active",
    "total": "275040 MiB",
    "used": "0 MiB",
    "ecc": "Enabled",
    "sram": "0",
    "dram": "0",
    "remap": "No",
    "power": "1100.00 W",
    "fabric": "Completed",
    "status": "Success",
    "processes": "    Processes                                          : None",
}
MEMINFO = """\
MemTotal:       2113374132 kB
MemFree:        1950000000 kB
MemAvailable:   2000000000 kB
SwapTotal:              0 kB
HugePages_Total:        0
HugePages_Free:         0
Hugepagesize:       2048 kB
"""
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max stack size            67108864             unlimited            bytes
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
"""
TCP_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"


def recorded(name: str) -> str:
    """A recorded output."""
    return (DATA / name).read_text()


def query(first: Mapping[str, str] | None = None, *, count: int = 8) -> str:
    """What ``nvidia-smi -q`` prints of B300s; ``first`` changes what it says of the first."""
    block = recorded("nvidia-smi-q-gpu.txt")
    blocks = [
        block.format(bus=f"{index + 1:02X}", **{**_HEALTHY, **(first or {} if index == 0 else {})})
        for index in range(count)
    ]
    return recorded("nvidia-smi-q-head.txt") + "".join(blocks)


class Machine:
    """Files below ``root`` and tools in ``bin`` of a folder."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin = folder / "root", folder / "bin"
        self.root.mkdir()
        self.bin.mkdir()

    def file(self, path: str, text: str | bytes = "") -> "Machine":
        """Write one file."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
        return self

    def tool(self, name: str, answers: Mapping[str, str]) -> "Machine":
        """Make a tool that answers these arguments, and no others."""
        cases = []
        for number, (arguments, text) in enumerate(answers.items()):
            output = self.bin / f".{name}.{number}"
            output.write_text(text)
            cases.append(f"'{arguments}') exec {CAT} '{output}' ;;")
        return self.script(name, f'case "$*" in\n{os.linesep.join(cases)}\nesac\nexit 2')

    def script(self, name: str, body: str) -> "Machine":
        """Make a tool of a shell's own."""
        tool = self.bin / name
        tool.write_text(f"#!/bin/sh\n{body}\n")
        tool.chmod(0o755)
        return self

    def probe(self, *, timeout_s: float = 20.0, **environment: str) -> Probe:
        """A probe of this machine, with its tools alone."""
        return Probe(
            root=self.root,
            path=str(self.bin),
            environment={"PATH": str(self.bin), "HOME": "/root", **environment},
            timeout_s=timeout_s,
            processes=Processes(),
        )


def lock(path: Path) -> None:
    """Let nobody open a file; skips the test for a user who may all the same."""
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may open every file, as root does")


def bare(folder: Path) -> Machine:
    """A machine without a GPU on which nothing else is wrong."""
    machine = Machine(folder)
    for path, text in {
        "/proc/meminfo": MEMINFO,
        "/proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) 6776P\nprocessor\t: 1\n",
        "/proc/modules": "nvidia_peermem 20480 0 - Live 0x0\nnvidia 1 0 - Live 0x0\n",
        "/proc/self/limits": LIMITS,
        "/proc/self/mounts": "/dev/md0 / xfs rw 0 0\nnas:/home /home nfs4 rw 0 0\n",
        "/proc/1/cgroup": "0::/init.scope\n",
        "/proc/net/tcp": f"{TCP_HEAD}   0: 0100007F:0016 00000000:0000 0A 00000000:00000000\n",
        "/proc/sys/kernel/hostname": "node1\n",
        "/proc/sys/kernel/numa_balancing": "0\n",
        "/proc/sys/kernel/osrelease": "6.8.0-79-generic\n",
        "/etc/hosts": "127.0.0.1 localhost\n10.0.0.1 node1\n",
        "/etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.2 LTS"\n',
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/sys/class/net/eth0/operstate": "up\n",
        "/sys/class/net/eth0/speed": "100000\n",
        "/sys/class/net/eth0/device/vendor": "0x15b3\n",
        "/sys/class/net/lo/operstate": "unknown\n",
    }.items():
        machine.file(path, text)
    (machine.root / "dev" / "shm").mkdir(parents=True)
    for node in range(2):
        machine.file(f"/sys/devices/system/node/node{node}/cpulist", "0-55\n")
    machine.tool("chronyc", {"-n tracking": recorded("chronyc-tracking.txt")})
    machine.tool("dmesg", {"": "[    0.000000] Linux version 6.8.0\n"})
    machine.tool("docker", {"info --format {{json .}}": recorded("docker-info.json")})
    machine.tool("nvidia-ctk", {"--version": "NVIDIA Container Toolkit CLI version 1.17.8\n"})
    return machine


def add_gpus(machine: Machine, vendor: str, count: int = 8) -> Machine:
    """Put GPUs on the PCI bus, half of them on either NUMA node, and a display that is none."""
    for index in range(count):
        at = f"/sys/bus/pci/devices/0000:{index + 1:02x}:00.0"
        machine.file(f"{at}/vendor", f"{vendor}\n")
        machine.file(f"{at}/class", "0x030200\n" if vendor == "0x10de" else "0x120000\n")
        machine.file(f"{at}/numa_node", f"{index * 2 // count}\n")
    machine.file("/sys/bus/pci/devices/0000:f0:00.0/vendor", "0x1a03\n")
    machine.file("/sys/bus/pci/devices/0000:f0:00.0/class", "0x030000\n")
    return machine


def add_port(machine: Machine, device: str, **changes: str) -> Machine:
    """Add an RDMA device with one port that is up, unless changed."""
    at = f"/sys/class/infiniband/{device}"
    port: dict[str, Any] = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "800 Gb/sec (4X XDR)",
        "link_layer": "InfiniBand",
    } | changes
    for name, text in port.items():
        machine.file(f"{at}/ports/1/{name}", f"{text}\n")
    machine.file(f"{at}/hca_type", "MT4131\n").file(f"{at}/fw_ver", "40.46.5500\n")
    return machine.file(f"{at}/device/numa_node", "-1\n")


def b300(folder: Path, **first: str) -> Machine:
    """Eight B300 with their network cards; ``first`` changes what is said of the first GPU."""
    machine = add_gpus(bare(folder), "0x10de")
    for index in range(8):
        add_port(machine, f"mlx5_{index}")
    return machine.tool("nvidia-smi", smi(**first))


def smi(**first: str) -> dict[str, str]:
    """What nvidia-smi answers on eight B300."""
    return {
        "-q": query(first),
        "topo -m": recorded("nvidia-smi-topo-m.txt"),
        "topo -p2p r": recorded("nvidia-smi-topo-p2p.txt"),
        "nvlink -s": recorded("nvidia-smi-nvlink-s.txt"),
    }


def mi355x(folder: Path) -> Machine:
    """Eight MI355X."""
    machine = add_gpus(bare(folder), "0x1002")
    return machine.tool(
        "amd-smi",
        {f"{name} --json": recorded(f"amd-smi-{name}.json") for name in AMD_QUESTIONS},
    )


AMD_QUESTIONS = ("static", "metric", "process")
