"""Checks of RDMA: ports, rates, and cards that read GPU memory themselves."""

from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.host import Host
from k31ctl.core.host_rule import Fault, Need, Rule, Verdict, found, known, listed, skipped

GROUP: Final = "network"
_ONE_NODE: Final = "one node needs no network between nodes"
_BRIDGES: Final = "on B200 and B300 some mlx5 devices only manage NVLink and may be down"


def rdma_there(host: Host, need: Need) -> Verdict:
    """There is an RDMA port that is up, where several nodes serve together."""
    ports = known(host.rdma).ports
    up = [p for p in ports if p.state == "ACTIVE"]
    if need.num_nodes == 1:
        return skipped(_ONE_NODE)
    faults = [
        Fault(
            message=f"{len(ports)} RDMA ports, none of them up"
            if ports
            else "no RDMA device: collectives between nodes go over TCP, many times slower",
            remedy="pass /dev/infiniband and the devices to the container, load mlx5_ib or the "
            "cloud's driver (EFA), look at cables and subnet manager",
            where="/sys/class/infiniband",
        )
    ]
    return found(*(faults if not up else ()), good=_rates(host), num_ports_up=len(up))


def _rates(host: Host) -> str:
    ports = [p for p in known(host.rdma).ports if p.state == "ACTIVE"]
    rates = sorted({p.rate_gbit_per_s or 0.0 for p in ports}, reverse=True)
    return f"{len(ports)} ports up, {', '.join(f'{rate:g}' for rate in rates)} Gb/s"


def rdma_links(host: Host, need: Need) -> Verdict:
    """No RDMA port is down, and all of one kind run at one rate."""
    ports = known(host.rdma).ports
    if not ports:
        return skipped("no RDMA device")
    weaker = None if need.num_nodes > 1 else Severity.INFO
    down = [p for p in ports if p.state != "ACTIVE"]
    faults = []
    if down:
        faults.append(
            Fault(
                message=f"{len(down)} of {len(ports)} RDMA ports are not up: "
                + listed([f"{p.device} {p.state} {p.physical_state}" for p in down]),
                remedy=f"look at cables, switch ports and the subnet manager; {_BRIDGES}",
                where="/sys/class/infiniband",
                severity=weaker,
            )
        )
    up = [p for p in ports if p.state == "ACTIVE" and p.rate_gbit_per_s]
    for board in sorted({p.board for p in up}):
        alike = [p for p in up if p.board == board]
        best = max(p.rate_gbit_per_s or 0.0 for p in alike)
        slow = [p for p in alike if (p.rate_gbit_per_s or 0.0) < best]
        if slow and board:
            faults.append(
                Fault(
                    message=f"{listed([p.device for p in slow])} run below {best:g} Gb/s",
                    remedy="look at the cable and at errors of the port",
                    where="/sys/class/infiniband",
                    severity=weaker,
                )
            )
    return found(*faults, good=_rates(host), num_ports=len(ports), num_ports_down=len(down))


def gpu_direct(host: Host, need: Need) -> Verdict:
    """Network cards can read GPU memory themselves."""
    rdma = known(host.rdma)
    if need.num_nodes == 1 or not rdma.ports:
        return skipped(_ONE_NODE if need.num_nodes == 1 else "no RDMA device")
    faults = [
        Fault(
            message="neither nvidia_peermem nor a driver with DMA-BUF is loaded: data between "
            "nodes passes host memory",
            remedy="modprobe nvidia_peermem, or use the open kernel modules; where mlx5 fails "
            "with errno 524 set NCCL_DMABUF_ENABLE=0",
            where="/proc/modules",
        )
    ]
    return found(*(faults if not rdma.peer_memory else ()), good="cards read GPU memory themselves")


RDMA_RULES: Final = (
    Rule(
        id="rdma-present",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("rdma",),
        source="NCCL user guide; vllm-project/recipes, Kimi-K3 on several nodes",
        judge=rdma_there,
    ),
    Rule(
        id="rdma-links",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("rdma",),
        source="kernel ABI, sysfs-class-infiniband",
        judge=rdma_links,
    ),
    Rule(
        id="rdma-gpu-memory",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("rdma",),
        source="NVIDIA GPUDirect RDMA documentation; K3 recipe notes: mlx5 DMA-BUF errno 524",
        judge=gpu_direct,
    ),
)
