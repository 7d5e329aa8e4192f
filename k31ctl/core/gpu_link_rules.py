"""Checks of the ways between GPUs, and from GPUs to the host and its network cards."""

from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.gpu_rules import place
from k31ctl.core.hardware import Node
from k31ctl.core.host import Host, Why
from k31ctl.core.host_rule import Fault, Need, Rule, Verdict, fine, found, known, listed, skipped

GROUP: Final = "links between GPUs"
_FABRIC_READY: Final = "Completed"


def nvlink_everywhere(host: Host, need: Need) -> Verdict:
    """Every pair of GPUs is joined by NVLink where the hardware has it."""
    if (why := _no_nvlink(host, need)) is not None:
        return skipped(why)
    pairs = known(host.topology).gpu_pairs
    bad = [p for p in pairs if not p.link.startswith("NV")]
    if not pairs:
        return skipped("one GPU only, or nvidia-smi topo -m shows no matrix")
    faults = [
        Fault(
            message=f"{len(bad)} of {len(pairs)} pairs of GPUs have no NVLink: "
            + listed([f"{p.first}-{p.second} {p.link}" for p in bad]),
            remedy="restart nvidia-fabricmanager; a GPU that stays outside needs service",
            where="nvidia-smi topo -m",
        )
    ]
    kinds = sorted({p.link for p in pairs})
    return found(
        *(faults if bad else ()), good=f"{', '.join(kinds)} between all {len(pairs)} pairs"
    )


def nvlinks_up(host: Host, need: Need) -> Verdict:
    """No NVLink of a GPU is down, and all GPUs have as many."""
    links = known(host.topology).links
    if not links:
        return skipped("nvidia-smi nvlink -s lists no links")
    most = max(link.num_active for link in links)
    faults = [
        Fault(
            message=f"{link.num_active} NVLinks are up, others have {most}"
            if not link.inactive
            else f"NVLinks {listed([str(n) for n in link.inactive])} are down",
            remedy="restart nvidia-fabricmanager; look for Xid 74 and 144 to 150",
            where=f"GPU {link.gpu}",
        )
        for link in links
        if link.inactive or link.num_active < most
    ]
    rate = min((link.rate_gb_per_s or 0.0 for link in links), default=0.0)
    return found(*faults, good=f"{most} per GPU, {rate:g} GB/s each and one way", num_links=most)


def fabric_ready(host: Host, need: Need) -> Verdict:
    """Every GPU has joined the NVLink fabric; without it CUDA does not even start (error 802)."""
    gpus = known(host.gpus).gpus
    states = [gpu for gpu in gpus if gpu.fabric]
    bad = [g for g in states if not g.fabric.startswith(_FABRIC_READY) or "Success" not in g.fabric]
    if states:
        faults = [
            Fault(
                message=f"{len(bad)} of {len(gpus)} GPUs have not joined the NVLink fabric "
                f"({bad[0].fabric})",
                remedy="systemctl enable --now nvidia-fabricmanager, of the driver's own version; "
                "on NVL72 look at the rack's fabric manager and IMEX",
                where=listed([place(gpu) for gpu in bad]),
            )
            for _ in bad[:1]
        ]
        return found(*faults, good="all GPUs have joined the NVLink fabric")
    return _manager_alone(host, need)


def _manager_alone(host: Host, need: Need) -> Verdict:
    """Where the driver tells no fabric state: the service, as systemd sees it."""
    if (why := _no_nvlink(host, need)) is not None:
        return skipped(why)
    state = host.fabric_manager
    if state is None:
        missed = host.missing("fabric_manager")
        return skipped(missed.why if missed else "it was not asked for")
    faults = [
        Fault(
            message=f"nvidia-fabricmanager is {state}",
            remedy="systemctl enable --now nvidia-fabricmanager",
            where="systemd",
        )
    ]
    return found(*(faults if state != "active" else ()), good="nvidia-fabricmanager is active")


def peer_access(host: Host, need: Need) -> Verdict:
    """Every GPU may read every other one's memory."""
    topology = known(host.topology)
    bad = topology.unreachable
    if not topology.gpu_pairs:
        return skipped("one GPU only")
    faults = [
        Fault(
            message=f"{len(bad)} pairs of GPUs cannot read each other's memory: "
            + listed([f"{p.first}-{p.second} {p.link}" for p in bad]),
            remedy="switch off ACS and the IOMMU in the firmware, or pass all GPUs of a baseboard; "
            "NCCL falls back to host memory otherwise",
            where="nvidia-smi topo -p2p r",
        )
    ]
    return found(*(faults if bad else ()), good="all pairs can read each other's memory")


def pcie(host: Host, need: Need) -> Verdict:
    """Every GPU has all lanes, and the slot offers the generation that the GPU can."""
    links = [(gpu, gpu.link) for gpu in known(host.gpus).gpus if gpu.link]
    if not links:
        return skipped("the driver does not tell the PCIe link")
    faults = []
    for gpu, link in links:
        if link.width < link.max_width:
            faults.append(
                Fault(
                    message=f"PCIe x{link.width} instead of x{link.max_width}: loading takes "
                    f"{link.max_width / link.width:.0f} times as long",
                    remedy="reseat the GPU or its riser; look for AER errors in the kernel log",
                    where=place(gpu),
                )
            )
        elif (link.host_generation or 99) < min(link.max_generation or 0, 5):
            faults.append(
                Fault(
                    message=f"the slot offers PCIe generation {link.host_generation}, the GPU "
                    f"can {link.max_generation}",
                    remedy="look at the slot's speed in the firmware",
                    where=place(gpu),
                )
            )
    first = links[0][1]
    said = f"x{first.width}" + (f", generation {first.generation}" if first.generation else "")
    return found(*faults, good=f"PCIe {said} on all GPUs")


def numa(host: Host, need: Need) -> Verdict:
    """Each GPU has a NUMA node, and the kernel does not move pages on its own."""
    memory = known(host.memory)
    if memory.num_numa_nodes == 1:
        return fine("one NUMA node", num_numa_nodes=1)
    on_bus = host.devices.gpus if host.devices else ()
    homeless = [gpu.address for gpu in on_bus if gpu.numa_node is None]
    faults = []
    if homeless:
        faults.append(
            Fault(
                message=f"{len(homeless)} GPUs have no NUMA node: processes are placed by chance",
                remedy="pass the topology to the virtual machine, or bind ranks by hand: "
                "numactl --cpunodebind --membind",
                where=listed(homeless),
            )
        )
    if memory.numa_balancing:
        faults.append(
            Fault(
                message="the kernel balances NUMA pages, which stalls GPU work",
                remedy="sysctl kernel.numa_balancing=0",
                where="/proc/sys/kernel/numa_balancing",
            )
        )
    spread = sorted({gpu.numa_node for gpu in on_bus if gpu.numa_node is not None})
    said = f"GPUs on NUMA nodes {', '.join(map(str, spread))}" if spread else "no GPU to place"
    return found(*faults, good=said, num_numa_nodes=memory.num_numa_nodes)


def near_cards(host: Host, need: Need) -> Verdict:
    """Each GPU has a network card near it."""
    pairs = known(host.topology).nic_pairs
    if need.num_nodes == 1:
        return skipped("one node needs no network card")
    if not pairs:
        return skipped("nvidia-smi topo -m shows no network card")
    near = {p.first for p in pairs if p.link in ("PIX", "PXB", "PHB")}
    far = sorted({p.first for p in pairs} - near)
    faults = [
        Fault(
            message=f"{len(far)} GPUs have no network card near them: {listed(far)}",
            remedy="choose cards with NCCL_IB_HCA; in a virtual machine ask for the real topology",
            where="nvidia-smi topo -m",
        )
    ]
    return found(*(faults if far else ()), good="a network card is near every GPU")


def _no_nvlink(host: Host, need: Need) -> str | None:
    """Why there is nothing to ask of NVLink; None where there should be some."""
    node: Node | None = need.node_like(host)
    gpus = host.gpus.gpus if host.gpus else ()
    if len(gpus) < 2:  # noqa: PLR2004  one GPU has no neighbour
        return "one GPU only"
    if gpus[0].vendor != "nvidia":
        return "this is for NVIDIA's GPUs"
    if node is None:
        return "no profile says whether this hardware has NVLink"
    if node.scale_up is None or node.scale_up.kind != "nvlink":
        return f"{node.id} has no NVLink"
    return None


def answered_topology(host: Host, need: Need) -> Verdict:
    """nvidia-smi could be asked for the topology where the GPUs are NVIDIA's."""
    missed = host.missing("topology")
    if known(host.gpus).gpus[0].vendor != "nvidia":
        return skipped("this is for NVIDIA's GPUs")
    if missed is None:
        return fine("nvidia-smi tells the topology")
    if missed.kind is Why.ABSENT:
        return skipped(missed.why)
    return found(
        Fault(
            message=f"the topology could not be read: {missed.why}",
            remedy="run nvidia-smi topo -m by hand and see where it stops",
            where="nvidia-smi topo",
        )
    )


_TOPO: Final = "nvidia-smi topo; vllm#16336"
GPU_LINK_RULES: Final = (
    Rule(
        id="gpu-topology",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("gpus",),
        source="nvidia-smi topo",
        judge=answered_topology,
        also=("topology",),
    ),
    Rule(
        id="nvlink-pairs",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("gpus", "topology"),
        source=_TOPO,
        judge=nvlink_everywhere,
    ),
    Rule(
        id="nvlink-links",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("topology",),
        source="nvidia-smi nvlink -s; NVIDIA Xid catalogue",
        judge=nvlinks_up,
    ),
    Rule(
        id="fabric-manager",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("gpus",),
        source="NVIDIA Fabric Manager user guide; CUDA error 802",
        judge=fabric_ready,
        also=("fabric_manager",),
    ),
    Rule(
        id="gpu-peer-access",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("topology",),
        source="nvidia-smi topo -p2p; NCCL troubleshooting guide",
        judge=peer_access,
    ),
    Rule(
        id="gpu-pcie",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("gpus",),
        source="nvidia-smi -q; the hardware profile",
        judge=pcie,
    ),
    Rule(
        id="numa",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("memory", "devices"),
        source="AMD Instinct system optimisation guide; kernel documentation, numa_balancing",
        judge=numa,
    ),
    Rule(
        id="gpu-network-cards",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("topology",),
        source="NCCL user guide, topology",
        judge=near_cards,
    ),
)
