"""RDMA ports, interfaces, ports in use, the clock and other machines."""

import re
import socket
import threading
import time
from collections.abc import Sequence
from typing import Final

from k31ctl.core.host import Clock, Interface, Network, Peer, Rdma, RdmaPort, Why
from k31ctl.host.probe import Missed, Probe

_LISTEN: Final = "0A"
_RATE: Final = re.compile(r"([\d.]+) Gb/sec")
_PEER_MODULES: Final = re.compile(r"(?m)^(nvidia_peermem|nv_peer_mem|amdgpu) ")


def rdma(probe: Probe) -> Rdma:
    """Every port of every RDMA device."""
    ports = []
    for device in probe.names("/sys/class/infiniband"):
        at = f"/sys/class/infiniband/{device}"
        for number in probe.names(f"{at}/ports"):
            if number.isdigit():
                ports.append(_port(probe, at, device, number))
    return Rdma(ports=tuple(ports), peer_memory=_peer_memory(probe))


def _port(probe: Probe, at: str, device: str, number: str) -> RdmaPort:
    rate = _RATE.match(probe.line(f"{at}/ports/{number}/rate"))
    node = probe.number(f"{at}/device/numa_node")
    return RdmaPort(
        device=device,
        port=int(number),
        state=_named(probe.line(f"{at}/ports/{number}/state")),
        physical_state=_named(probe.line(f"{at}/ports/{number}/phys_state")),
        rate_gbit_per_s=float(rate[1]) if rate else None,
        link_layer=probe.line(f"{at}/ports/{number}/link_layer"),
        firmware=probe.line(f"{at}/fw_ver"),
        board=probe.line(f"{at}/hca_type"),
        netdev=next(iter(probe.names(f"{at}/device/net")), ""),
        numa_node=None if node is None or node < 0 else node,
    )


def _named(text: str) -> str:
    """``4: ACTIVE`` without its number."""
    return text.partition(": ")[2] or text


def _peer_memory(probe: Probe) -> bool:
    """Whether a network card can read a GPU: a module for it, or a driver with DMA-BUF."""
    try:
        if _PEER_MODULES.search(probe.text("/proc/modules")):
            return True
    except Missed:
        pass
    return "Open Kernel Module" in probe.line("/proc/driver/nvidia/version")


def network(probe: Probe) -> Network:
    """Interfaces, this machine's name and the TCP ports that something listens on."""
    hostname = probe.line("/proc/sys/kernel/hostname")
    return Network(
        interfaces=tuple(_interface(probe, name) for name in probe.names("/sys/class/net")),
        hostname=hostname,
        hostname_is_loopback=_is_loopback(probe, hostname),
        listening=_listening(probe),
    )


def _interface(probe: Probe, name: str) -> Interface:
    at = f"/sys/class/net/{name}"
    speed = probe.number(f"{at}/speed")
    real = any(probe.exists(f"{at}/{mark}") for mark in ("device", "bonding"))
    return Interface(
        name=name,
        is_up=probe.line(f"{at}/operstate") == "up" or (name == "lo"),
        virtual=not real,
        speed_mbit_per_s=speed if speed is not None and speed > 0 else None,
    )


def _is_loopback(probe: Probe, hostname: str) -> bool:
    """Whether /etc/hosts gives this machine's own name only addresses of the loopback."""
    try:
        lines = probe.text("/etc/hosts").splitlines()
    except Missed:
        return False
    addresses = [
        cells[0]
        for cells in (line.partition("#")[0].split() for line in lines)
        if hostname and hostname in cells[1:]
    ]
    return bool(addresses) and all(a.startswith("127.") or a == "::1" for a in addresses)


def _listening(probe: Probe) -> tuple[int, ...]:
    found = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = probe.text(path).splitlines()[1:]
        except Missed:
            continue
        for line in lines:
            cells = line.split()
            local = re.fullmatch(r"[0-9A-F]+:([0-9A-F]{4})", cells[1]) if len(cells) > 3 else None  # noqa: PLR2004
            if local and cells[3] == _LISTEN:
                found.add(int(local[1], 16))
    return tuple(sorted(found))


def clock(probe: Probe) -> Clock:
    """Whether the clock follows a server, by chrony or systemd; raises Missed."""
    missed_both = []
    for asked in (_by_chrony, _by_systemd):
        try:
            return asked(probe)
        except Missed as missed:
            missed_both.append(missed)
            if missed.kind is Why.SLOW:
                break
    kinds = {missed.kind for missed in missed_both}
    kind = Why.ABSENT if kinds == {Why.ABSENT} else Why.FAILED
    raise Missed(kind, "; ".join(missed.why for missed in missed_both))


def _by_chrony(probe: Probe) -> Clock:
    told = probe.run("chronyc", "-n", "tracking")
    leap = re.search(r"(?m)^Leap status\s*:\s*(.+)$", told)
    offset = re.search(r"(?m)^System time\s*:\s*([\d.]+) seconds (slow|fast)", told)
    if leap is None:
        raise Missed(Why.FAILED, "chronyc prints something else than it should")
    sign = -1.0 if offset and offset[2] == "slow" else 1.0
    return Clock(
        synchronised=leap[1].strip() == "Normal",
        told_by="chronyc tracking",
        offset_s=sign * float(offset[1]) if offset else None,
    )


def _by_systemd(probe: Probe) -> Clock:
    told = probe.run("timedatectl", "show")
    found = re.search(r"(?m)^NTPSynchronized=(yes|no)$", told)
    if found is None:
        raise Missed(Why.FAILED, "timedatectl prints something else than it should")
    return Clock(synchronised=found[1] == "yes", told_by="timedatectl show")


def fabric_manager(probe: Probe) -> str:
    """What systemd says of NVIDIA's fabric manager: active, inactive, failed, ..."""
    told = probe.run(
        "systemctl", "show", "nvidia-fabricmanager", "--property=LoadState,ActiveState"
    )
    states = dict(line.partition("=")[::2] for line in told.splitlines())
    if states.get("LoadState") == "not-found":
        raise Missed(Why.ABSENT, "systemd knows no nvidia-fabricmanager")
    if not states.get("ActiveState"):
        raise Missed(Why.FAILED, "systemctl prints something else than it should")
    return states["ActiveState"]


def peers(addresses: Sequence[tuple[str, int]], *, timeout_s: float) -> tuple[Peer, ...]:
    """Connect to every address at once and close again; a refusal is an answer too."""
    found: dict[int, Peer] = {}
    threads = [
        threading.Thread(
            target=lambda i=index, a=address: found.update({i: _peer(a, timeout_s)}),
            daemon=True,
        )
        for index, address in enumerate(addresses)
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return tuple(
        found.get(index)
        or Peer(address=_shown(address), round_trip_s=None, why="no answer in time")
        for index, address in enumerate(addresses)
    )


def _shown(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _peer(address: tuple[str, int], timeout_s: float) -> Peer:
    shown = _shown(address)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        return Peer(address=shown, round_trip_s=None, why="the name has no address")
    start = time.perf_counter()
    with socket.socket(family, kind, protocol) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(place)
        except ConnectionRefusedError:
            return Peer(
                address=shown, round_trip_s=time.perf_counter() - start, why="nothing listens yet"
            )
        except OSError as error:
            why = "no answer in time" if isinstance(error, TimeoutError) else str(error.strerror)
            return Peer(address=shown, round_trip_s=None, why=why.lower())
    return Peer(address=shown, round_trip_s=time.perf_counter() - start)
