"""A machine on which nothing is wrong, and what it shall serve."""

from dataclasses import replace
from typing import Any

from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.needs import load_need
from k31ctl.core.host import (
    Clock,
    Containers,
    Devices,
    DiskRead,
    GpuLinks,
    Gpus,
    Host,
    HostGpu,
    Interface,
    Limits,
    Memory,
    MissedSection,
    Network,
    Pair,
    PcieLink,
    PciGpu,
    Peer,
    Rdma,
    RdmaPort,
    Segments,
    Shm,
    Software,
    System,
    Topology,
    WeightsFolder,
    Why,
)
from k31ctl.core.host_rule import Need

STORE = Store(default_folders())
GIB = 2**30


def need(**asked: Any) -> Need:
    """Kimi K3 on vLLM and eight B300, unless something else is asked for."""
    given = {"model": "kimi-k3", "engine": "vllm@0.33.0", "on": "8x-b300", "num_nodes": 1, **asked}
    return load_need(STORE, **given)


ONE_NODE = need()
TWO_NODES = need(num_nodes=2)


def gpu(index: int, **changes: Any) -> HostGpu:
    """One of eight B300."""
    healthy = HostGpu(
        index=index,
        vendor="nvidia",
        name="NVIDIA B300 SXM6 AC",
        bus_id=f"0000:{index + 1:02x}:00.0",
        memory_bytes=275_040 * 2**20,
        used_bytes=0,
        persistence=True,
        ecc_on=True,
        ecc_uncorrected=0,
        link=PcieLink(width=16, max_width=16, generation=5, max_generation=6, host_generation=5),
        power_limit_w=1100.0,
        default_power_limit_w=1100.0,
        fabric="Completed, Success",
    )
    return replace(healthy, **changes)


def gpus(first: dict[str, Any] | None = None, *, count: int = 8, **all_of: Any) -> Gpus:
    """Eight GPUs; ``first`` changes the first, the rest all of them."""
    listed = [gpu(index, **all_of) for index in range(count)]
    listed[0] = replace(listed[0], **(first or {}))
    return Gpus(gpus=tuple(listed), driver="580.95.05", cuda="13.0", told_by="nvidia-smi -q")


def port(index: int, **changes: Any) -> RdmaPort:
    """An RDMA port that is up."""
    up = RdmaPort(
        device=f"mlx5_{index}",
        port=1,
        state="ACTIVE",
        physical_state="LinkUp",
        rate_gbit_per_s=800.0,
        link_layer="InfiniBand",
        board="MT4131",
    )
    return replace(up, **changes)


PAIRS = tuple(
    Pair(first=f"GPU{a}", second=f"GPU{b}", link="NV18") for a in range(8) for b in range(a + 1, 8)
)
CARDS = tuple(Pair(first=f"GPU{i}", second=f"NIC{i}", link="PIX") for i in range(8))
TOPOLOGY = Topology(
    gpu_pairs=PAIRS,
    nic_pairs=CARDS,
    links=tuple(
        GpuLinks(gpu=i, num_active=18, inactive=(), rate_gb_per_s=53.125) for i in range(8)
    ),
)
MEMORY = Memory(
    total_bytes=2048 * GIB,
    available_bytes=1900 * GIB,
    limit_bytes=None,
    reserved_huge_bytes=0,
    transparent_huge_pages="madvise",
    num_numa_nodes=2,
    numa_balancing=False,
)
NO_SEGMENTS = Segments(num_segments=0, total_bytes=0, example="", all_holders_seen=True)
NETWORK = Network(
    interfaces=(
        Interface(name="eth0", is_up=True, virtual=False, speed_mbit_per_s=100_000),
        Interface(name="lo", is_up=True, virtual=True),
    ),
    hostname="node1",
    hostname_is_loopback=False,
    listening=(22,),
)
WEIGHTS = WeightsFolder(
    folder="/models/k3",
    filesystem="xfs",
    free_bytes=10**13,
    present_bytes=10**12,
    num_files=60,
    read=DiskRead(read_bytes=10**10, seconds=1.0, direct=True),
)
INSTALLED = {
    "vllm": "0.33.0",
    "tiktoken": "0.12.0",
    "blobfile": "3.1.0",
    "nvidia-nccl-cu13": "2.29.3",
    "runai-model-streamer": "0.15.0",
}
HEALTHY = Host(
    system=System(
        kernel="6.8.0",
        distribution="Ubuntu 24.04.2 LTS",
        machine="x86_64",
        num_processors=224,
        processor="Intel(R) Xeon(R) 6776P",
    ),
    devices=Devices(
        gpus=tuple(
            PciGpu(vendor="nvidia", address=f"0000:{i + 1:02x}:00.0", numa_node=i // 4)
            for i in range(8)
        )
    ),
    gpus=gpus(),
    topology=TOPOLOGY,
    kernel_log=(),
    fabric_manager="active",
    rdma=Rdma(ports=tuple(port(i) for i in range(8)), peer_memory=True),
    memory=MEMORY,
    shm=Shm(size_bytes=1024 * GIB, free_bytes=1024 * GIB, stale=NO_SEGMENTS),
    limits=Limits(memlock_bytes=None, nofile=1_048_576, stack_bytes=None),
    containers=Containers(
        inside=False,
        runtimes={"docker": "28.2.2"},
        docker_runtimes=("nvidia", "runc"),
        toolkit="1.17.8",
    ),
    clock=Clock(synchronised=True, told_by="chronyc tracking", offset_s=1e-5),
    network=NETWORK,
    environment={
        "HOME": "/root",
        "RUNAI_STREAMER_MEMORY_LIMIT": str(32 * GIB),
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.1",
    },
    home_filesystem="ext4",
    software=Software(interpreter="/opt/venv/bin/python", distributions=INSTALLED),
    weights=WEIGHTS,
    peers=(Peer(address="node2:22", round_trip_s=0.0002),),
)
AMD = replace(
    HEALTHY,
    devices=Devices(
        gpus=tuple(
            PciGpu(vendor="amd", address=f"0000:{i + 1:02x}:00.0", numa_node=0) for i in range(8)
        )
    ),
    gpus=Gpus(
        gpus=tuple(
            HostGpu(
                index=i,
                vendor="amd",
                name="AMD Instinct MI355X",
                bus_id=f"0000:{i + 1:02x}:00.0",
                memory_bytes=288 * GIB,
                used_bytes=283 * 2**20,
                architecture="gfx950",
                ecc_uncorrected=0,
            )
            for i in range(8)
        ),
        driver="6.16.6",
        told_by="amd-smi",
    ),
    topology=None,
)


def with_(**changes: Any) -> Host:
    """The healthy machine with other sections."""
    return replace(HEALTHY, **changes)


def without(section: str, kind: Why, why: str, **changes: Any) -> Host:
    """The healthy machine, one section of which could not be read."""
    missed = MissedSection(section=section, kind=kind, why=why)
    return replace(HEALTHY, **{section: None}, missed=(missed,), **changes)
