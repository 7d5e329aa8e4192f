"""Every check of a machine has a case in which it fails and one in which it passes."""

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.finding import Severity
from k31ctl.core.host import (
    Clock,
    Containers,
    Devices,
    DiskRead,
    GpuLinks,
    GpuProcess,
    Host,
    Interface,
    KernelFault,
    Limits,
    MissedSection,
    Pair,
    PcieLink,
    PciGpu,
    Peer,
    Rdma,
    Segments,
    Shm,
    Software,
    System,
    Why,
)
from k31ctl.core.host_rule import Need
from k31ctl.core.readiness import RULES, Readiness, Status, chosen_rules, judged, sections_of
from tests.core import hosts
from tests.core.hosts import AMD, GIB, HEALTHY, MEMORY, NETWORK, ONE_NODE, TWO_NODES, WEIGHTS, with_

TRT = hosts.need(engine="tensorrt-llm")
SLOW = Why.SLOW
ARM = System(kernel="6.8", distribution="", machine="aarch64", num_processors=144, processor="")
SMALL = 64 * 2**20


def installed(**versions: str | None) -> Software:
    """The healthy interpreter with other versions; None leaves one out."""
    named = {key.replace("_", "-"): value for key, value in versions.items()}
    found = {k: v for k, v in (hosts.INSTALLED | named).items() if v is not None}
    return Software(interpreter="/opt/venv/bin/python", distributions=found)


def told(**variables: str) -> dict[str, str]:
    """The healthy environment and these variables."""
    return {**(HEALTHY.environment or {}), **variables}


BOTH_UP = (*NETWORK.interfaces, Interface(name="eth1", is_up=True, virtual=False))

# rule: a machine on which it finds something, what it shall serve, and words of the message
FAILING: Final[dict[str, tuple[Host, Need, str]]] = {
    "gpu-present": (
        replace(hosts.without("gpus", Why.ABSENT, "no driver"), devices=Devices(gpus=())),
        ONE_NODE,
        "no GPU was found",
    ),
    "gpu-driver-answers": (
        hosts.without("gpus", SLOW, "nvidia-smi -q did not answer in time"),
        ONE_NODE,
        "8 GPUs are on the PCI bus, and the driver lists none: nvidia-smi -q did not",
    ),
    "gpu-device-access": (
        with_(devices=Devices(gpus=(), locked=("/dev/kfd",))),
        ONE_NODE,
        "may not open /dev/kfd",
    ),
    "gpu-count": (with_(gpus=hosts.gpus(count=7)), ONE_NODE, "7 GPUs, 8x-b300 has 8"),
    "gpu-kind": (
        with_(gpus=hosts.gpus({"name": "NVIDIA H200"})),
        ONE_NODE,
        "not alike: NVIDIA B300 SXM6 AC, NVIDIA H200",
    ),
    "gpu-supported": (
        with_(gpus=hosts.gpus(vendor="amd", name="AMD Instinct MI300X", architecture="gfx942")),
        ONE_NODE,
        "no kernels for Kimi K3",
    ),
    "gpu-weights-fit": (
        with_(gpus=hosts.gpus(memory_bytes=80 * GIB)),
        ONE_NODE,
        "the GPUs of such a node have 640.0 GiB",
    ),
    "gpu-memory-free": (
        with_(
            gpus=hosts.gpus(
                {
                    "used_bytes": 41 * GIB,
                    "processes": (GpuProcess(pid=42, name="python", memory_bytes=41 * GIB),),
                }
            )
        ),
        ONE_NODE,
        "41.0 GiB of 268.6 GiB are taken by python (42)",
    ),
    "gpu-driver": (
        with_(gpus=replace(hosts.gpus(), driver="575.57.08")),
        ONE_NODE,
        "driver 575.57.08 is older than 580, which CUDA 13 needs",
    ),
    "gpu-ecc-errors": (
        with_(gpus=hosts.gpus({"ecc_uncorrected": 3})),
        ONE_NODE,
        "3 uncorrectable memory errors",
    ),
    "gpu-ecc-mode": (with_(gpus=hosts.gpus({"ecc_on": False})), ONE_NODE, "correction is off"),
    "gpu-repairs": (
        with_(gpus=hosts.gpus({"repairs": ("Remapped Rows Pending",), "recovery": "Reset"})),
        ONE_NODE,
        "Remapped Rows Pending, Reset",
    ),
    "gpu-xid": (
        with_(kernel_log=(KernelFault(code=79, bus_id="0000:01:00.0", text="Xid 79, fallen"),)),
        ONE_NODE,
        "once since boot: Xid 79",
    ),
    "gpu-xid-program": (
        with_(kernel_log=(KernelFault(code=13, bus_id="0000:01:00.0", text="Xid 13"),) * 2),
        ONE_NODE,
        "Xid 13, 2 times since boot: a program's own mistake",
    ),
    "gpu-persistence": (
        with_(gpus=hosts.gpus({"persistence": False})),
        ONE_NODE,
        "persistence mode is off",
    ),
    "gpu-whole": (with_(gpus=hosts.gpus({"partition": "MIG"})), ONE_NODE, "in slices (MIG)"),
    "gpu-clocks": (
        with_(gpus=hosts.gpus({"slowed_by": ("HW Thermal Slowdown",), "power_limit_w": 700.0})),
        ONE_NODE,
        "slowed by hardware thermal slowdown, a power limit of 700 W instead of 1100 W",
    ),
    "gpu-topology": (
        hosts.without("topology", SLOW, "nvidia-smi topo did not answer in time"),
        ONE_NODE,
        "topology could not be read",
    ),
    "nvlink-pairs": (
        with_(
            topology=replace(
                hosts.TOPOLOGY,
                gpu_pairs=(*hosts.PAIRS[1:], Pair(first="GPU0", second="GPU1", link="NODE")),
            )
        ),
        ONE_NODE,
        "1 of 28 pairs of GPUs have no NVLink: GPU0-GPU1 NODE",
    ),
    "nvlink-links": (
        with_(
            topology=replace(
                hosts.TOPOLOGY,
                links=(
                    *hosts.TOPOLOGY.links[1:],
                    GpuLinks(gpu=0, num_active=17, inactive=(3,), rate_gb_per_s=53.125),
                ),
            )
        ),
        ONE_NODE,
        "NVLinks 3 are down",
    ),
    "fabric-manager": (
        with_(gpus=hosts.gpus({"fabric": "In Progress"})),
        ONE_NODE,
        "1 of 8 GPUs have not joined the NVLink fabric (In Progress)",
    ),
    "gpu-peer-access": (
        with_(
            topology=replace(
                hosts.TOPOLOGY, unreachable=(Pair(first="GPU0", second="GPU1", link="CNS"),)
            )
        ),
        ONE_NODE,
        "1 pairs of GPUs cannot read each other's memory: GPU0-GPU1 CNS",
    ),
    "gpu-pcie": (
        with_(gpus=hosts.gpus({"link": PcieLink(width=4, max_width=16)})),
        ONE_NODE,
        "PCIe x4 instead of x16: loading takes 4 times",
    ),
    "numa": (
        with_(memory=replace(MEMORY, numa_balancing=True)),
        ONE_NODE,
        "the kernel balances NUMA pages",
    ),
    "gpu-network-cards": (
        with_(
            topology=replace(
                hosts.TOPOLOGY,
                nic_pairs=(*hosts.CARDS[1:], Pair(first="GPU0", second="NIC0", link="SYS")),
            )
        ),
        TWO_NODES,
        "1 GPUs have no network card near them: GPU0",
    ),
    "host-memory": (
        with_(memory=replace(MEMORY, limit_bytes=512 * GIB)),
        ONE_NODE,
        "the cgroup allows 512.0 GiB of memory",
    ),
    "host-memory-weights": (
        with_(memory=replace(MEMORY, total_bytes=1000 * GIB)),
        TRT,
        "ranks that load lazily run out",
    ),
    "host-memory-available": (
        with_(memory=replace(MEMORY, available_bytes=100 * GIB)),
        ONE_NODE,
        "100.0 GiB of host memory are available, 700.0 GiB are needed",
    ),
    "hugepages": (
        with_(memory=replace(MEMORY, reserved_huge_bytes=1024 * GIB)),
        ONE_NODE,
        "1.0 TiB are set aside as huge pages",
    ),
    "shm-size": (
        with_(shm=Shm(size_bytes=SMALL, free_bytes=SMALL, stale=hosts.NO_SEGMENTS)),
        ONE_NODE,
        "/dev/shm has 64.0 MiB; at least 32 GiB is what recipes give, and NCCL stops",
    ),
    "shm-stale": (
        with_(
            shm=Shm(
                size_bytes=64 * GIB,
                free_bytes=GIB,
                stale=Segments(
                    num_segments=9, total_bytes=GIB, example="psm_1", all_holders_seen=True
                ),
            )
        ),
        ONE_NODE,
        "9 segments of 1.0 GiB that no process has open, such as psm_1",
    ),
    "limit-memlock": (
        with_(limits=Limits(memlock_bytes=65536, nofile=None, stack_bytes=None)),
        TWO_NODES,
        "only 64.0 KiB may be locked",
    ),
    "limit-nofile": (
        with_(limits=Limits(memlock_bytes=None, nofile=1024, stack_bytes=None)),
        ONE_NODE,
        "1,024 files may be open; recipes ask for 65,536",
    ),
    "limit-stack": (
        with_(limits=Limits(memlock_bytes=None, nofile=None, stack_bytes=8 * 2**20)),
        ONE_NODE,
        "the stack is 8.0 MiB",
    ),
    "weights-folder": (
        hosts.without("weights", SLOW, "/models: does not answer in time"),
        ONE_NODE,
        "cannot be read: /models: does not answer in time",
    ),
    "weights-space": (
        with_(weights=replace(WEIGHTS, free_bytes=10**9)),
        ONE_NODE,
        "are not here yet, 953.7 MiB are free",
    ),
    "weights-speed": (
        # 1.56 TB at 100 MB/s are 15,599 s, beyond the hour that recipes wait
        with_(weights=replace(WEIGHTS, read=DiskRead(read_bytes=10**8, seconds=1.0, direct=False))),
        ONE_NODE,
        "load in about 260 min",
    ),
    "weights-filesystem": (
        with_(weights=replace(WEIGHTS, filesystem="overlay")),
        ONE_NODE,
        "in the container's own layer",
    ),
    "rdma-present": (with_(rdma=Rdma(ports=(), peer_memory=False)), TWO_NODES, "no RDMA device"),
    "rdma-links": (
        with_(
            rdma=Rdma(
                ports=(hosts.port(0, state="DOWN", physical_state="Disabled"), hosts.port(1)),
                peer_memory=True,
            )
        ),
        TWO_NODES,
        "1 of 2 RDMA ports are not up: mlx5_0 DOWN Disabled",
    ),
    "rdma-gpu-memory": (
        with_(rdma=Rdma(ports=(hosts.port(0),), peer_memory=False)),
        TWO_NODES,
        "neither nvidia_peermem nor a driver with DMA-BUF",
    ),
    "network-interface": (
        with_(
            environment=told(GLOO_SOCKET_IFNAME="eth0", NCCL_SOCKET_IFNAME="lo"),
        ),
        TWO_NODES,
        "NCCL_SOCKET_IFNAME=lo is the loopback",
    ),
    "network-own-name": (
        with_(network=replace(NETWORK, hostname_is_loopback=True)),
        TWO_NODES,
        "node1 is an address of the loopback",
    ),
    "network-side-channel": (
        with_(environment=told(VLLM_NIXL_SIDE_CHANNEL_HOST="127.0.0.1")),
        TWO_NODES,
        "VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 cannot be reached",
    ),
    "ports-free": (
        with_(network=replace(NETWORK, listening=(22, 29501))),
        TWO_NODES,
        "something listens on port 29501",
    ),
    "peers-reachable": (
        with_(peers=(Peer(address="node2:22", round_trip_s=None, why="no answer in time"),)),
        TWO_NODES,
        "node2:22 cannot be reached: no answer in time",
    ),
    "peers-near": (
        with_(peers=(Peer(address="node2:22", round_trip_s=0.04),)),
        TWO_NODES,
        "node2:22 answers after 40 ms",
    ),
    "clock": (
        with_(clock=Clock(synchronised=False, told_by="timedatectl show")),
        ONE_NODE,
        "the clock follows no server",
    ),
    "container-runtime": (
        with_(containers=Containers(inside=False, runtimes={}), software=installed(vllm=None)),
        ONE_NODE,
        "no docker, podman or containerd",
    ),
    "container-toolkit": (
        with_(containers=Containers(inside=False, runtimes={"docker": "28.2.2"})),
        ONE_NODE,
        "no NVIDIA container toolkit",
    ),
    "engine-model": (
        HEALTHY,
        hosts.need(model="kimi-k3.1-pro", engine="vllm@0.33.0"),
        "vLLM 0.33.0 does not read KimiK31ForConditionalGeneration",
    ),
    "engine-version": (
        with_(software=installed(vllm="0.33.0")),
        hosts.need(model="kimi-k3.1-pro", engine="vllm"),
        "vllm 0.33.0 is installed, which does not read KimiK31ForConditionalGeneration",
    ),
    "engine-vocabulary": (
        with_(software=installed(blobfile=None)),
        ONE_NODE,
        "blobfile missing",
    ),
    "engine-nccl": (
        with_(system=ARM, software=installed(nvidia_nccl_cu13="2.28.9")),
        TWO_NODES,
        "NCCL 2.28.9: CUDA graphs over several ARM nodes race before 2.29.3",
    ),
    "engine-loader": (
        with_(environment={"HOME": "/root"}),
        ONE_NODE,
        "the Run:ai streamer takes as much host memory",
    ),
    "engine-caches": (with_(home_filesystem="nfs4"), ONE_NODE, "the home folder is on nfs4"),
    "engine-symmetric-memory": (
        with_(environment=told(VLLM_USE_NCCL_SYMM_MEM="1")),
        ONE_NODE,
        "VLLM_USE_NCCL_SYMM_MEM=1",
    ),
}
# Where the healthy machine is not one that the rule looks at.
PASSING: Final[dict[str, tuple[Host, Need]]] = {
    **{rule.id: (HEALTHY, TWO_NODES) for rule in RULES},
    "engine-nccl": (with_(system=ARM), TWO_NODES),
}
IDS = [rule.id for rule in RULES]
ASKS_NOTHING = ("gpu-present", "engine-model")  # of the machine: they have an answer without it
SECTIONS = sorted({section for rule in RULES for section in (*rule.sections, *rule.also)})


def end(rule: str, host: Host, need: Need) -> Readiness:
    """What one rule says."""
    return judged(host, need, chosen_rules(only=[rule], skip=[]))


def test_every_rule_is_named_once_and_has_both_cases() -> None:
    assert len(IDS) == len(set(IDS))
    assert set(FAILING) == set(PASSING) == set(IDS)


@pytest.mark.parametrize("rule", IDS)
def test_a_rule_finds_its_fault_with_remedy_source_and_place(rule: str) -> None:
    host, need, words = FAILING[rule]
    found = end(rule, host, need)
    severity = next(r.severity for r in RULES if r.id == rule)
    (first, *_) = found.findings
    assert words in first.message
    assert (first.id, first.severity) == (rule, severity)
    assert first.remedy
    assert first.source
    assert first.where
    status = {
        Severity.ERROR: Status.FAIL,
        Severity.WARNING: Status.WARN,
        Severity.INFO: Status.PASS,
    }
    assert found.checks[0].status is status[severity]


@pytest.mark.parametrize("rule", IDS)
def test_a_rule_passes_where_nothing_is_wrong(rule: str) -> None:
    found = end(rule, *PASSING[rule])
    assert (found.checks[0].status, found.findings) == (Status.PASS, ())
    assert found.checks[0].detail


@pytest.mark.parametrize("rule", IDS)
def test_a_rule_is_skipped_with_a_reason_on_a_machine_that_tells_nothing(rule: str) -> None:
    (check,) = end(rule, Host(), ONE_NODE).checks
    assert (check.status is Status.SKIP) == (rule not in ASKS_NOTHING)
    assert check.detail


@given(
    st.sets(st.sampled_from(SECTIONS)),
    st.sampled_from(list(Why)),
    st.sampled_from([HEALTHY, AMD]),
    st.sampled_from([ONE_NODE, TWO_NODES, TRT]),
)
def test_whatever_is_missing_every_rule_ends_with_a_word(
    absent: set[str], kind: Why, machine: Host, need: Need
) -> None:
    missed = tuple(MissedSection(section=s, kind=kind, why="so it is") for s in sorted(absent))
    host = replace(machine, missed=missed, **{section: None for section in absent})
    found = judged(host, need, RULES)
    assert len(found.checks) == len(RULES)
    assert all(check.detail for check in found.checks)
    assert found.is_ready == all(check.status is not Status.FAIL for check in found.checks)


def test_the_healthy_machine_is_ready() -> None:
    found = judged(HEALTHY, TWO_NODES, RULES)
    assert found.is_ready
    assert found.findings == ()


def test_an_amd_machine_is_not_asked_for_nvlink_or_a_cuda_driver() -> None:
    amd = hosts.need(engine="vllm@0.33.0", on="8x-mi355x")
    found = judged(AMD, amd, RULES)
    assert found.findings == ()
    skipped = {check.id for check in found.checks if check.status is Status.SKIP}
    assert {"gpu-driver", "nvlink-pairs", "fabric-manager", "gpu-topology"} <= skipped


def test_errors_come_before_warnings_and_those_before_what_is_to_know() -> None:
    bad = with_(
        limits=Limits(memlock_bytes=None, nofile=1024, stack_bytes=2**20),
        gpus=hosts.gpus({"ecc_uncorrected": 1}),
    )
    severities = [f.severity.value for f in judged(bad, ONE_NODE, RULES).findings]
    assert severities == ["error", "warning", "info"]


@pytest.mark.parametrize(
    ("variables", "interfaces", "num_faults"),
    [
        ({}, NETWORK.interfaces, 0),  # one interface: nothing to choose
        ({}, BOTH_UP, 2),
        ({"GLOO_SOCKET_IFNAME": "eth0"}, BOTH_UP, 1),
        ({"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth"}, BOTH_UP, 0),  # a prefix
        ({"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "^lo,docker"}, BOTH_UP, 0),
        ({"GLOO_SOCKET_IFNAME": "ib0", "NCCL_SOCKET_IFNAME": "=eth0"}, BOTH_UP, 1),
    ],
)
def test_an_interface_is_asked_for_where_there_is_a_choice(
    variables: dict[str, str], interfaces: tuple[Interface, ...], num_faults: int
) -> None:
    host = with_(environment=variables, network=replace(NETWORK, interfaces=interfaces))
    assert len(end("network-interface", host, TWO_NODES).findings) == num_faults


@pytest.mark.parametrize(
    ("model", "version", "status"),
    [
        ("kimi-k3", "0.33.0", Status.PASS),
        ("kimi-k3", "0.27.1", Status.PASS),  # the first that reads it
        ("kimi-k3", "0.27.0", Status.FAIL),
        ("kimi-k3.1-pro", "0.33.0", Status.FAIL),
        ("kimi-k3.1-pro", "0.33.0+cu130", Status.FAIL),
        ("kimi-k3.1-pro", "0.30.2", Status.FAIL),  # older than any release that reads it
        ("kimi-k3.1-pro", "0.35.0", Status.PASS),  # newer than what is known here
        ("kimi-k3", "0.33.1.dev4", Status.PASS),
    ],
)
def test_an_installed_engine_is_held_against_the_known_releases(
    model: str, version: str, status: Status
) -> None:
    need = hosts.need(model=model, engine="vllm")
    (check,) = end("engine-version", with_(software=installed(vllm=version)), need).checks
    assert check.status is status


def test_cuda_12_libraries_ask_for_an_older_driver_only() -> None:
    old = installed(nvidia_nccl_cu13=None, nvidia_nccl_cu12="2.27.5")
    host = with_(gpus=replace(hosts.gpus(), driver="550.127.08"), software=old)
    assert end("gpu-driver", host, ONE_NODE).findings == ()


def test_loading_is_as_slow_as_the_slower_of_disk_and_loader() -> None:
    # the loader's 5.9 GB/s go before the disk's 10 GB/s
    (check,) = end("weights-speed", HEALTHY, ONE_NODE).checks
    expected = ONE_NODE.weight_bytes / ONE_NODE.loader_bytes_per_s
    assert check.measured["load_s"] == pytest.approx(expected)


def test_the_embedded_engine_asks_for_no_host_memory_of_recipes() -> None:
    small = with_(memory=replace(MEMORY, total_bytes=64 * GIB, available_bytes=60 * GIB))
    found = judged(small, hosts.need(engine="embedded"), RULES)
    assert [f.id for f in found.findings] == ["host-memory-weights"]


def test_only_what_the_chosen_rules_look_at_is_asked_of_the_machine() -> None:
    rules = chosen_rules(only=["limit-nofile"], skip=[])
    assert sections_of(rules) == {"system", "limits"}


def test_b200_s_missing_nvlink_of_a_published_report_is_found() -> None:
    # vllm#16336: GPU2 of eight sees all others over PCIe
    pairs = tuple(
        replace(p, link="NODE") if "GPU2" in (p.first, p.second) else p for p in hosts.PAIRS
    )
    host = with_(topology=replace(hosts.TOPOLOGY, gpu_pairs=pairs))
    (finding,) = end("nvlink-pairs", host, ONE_NODE).findings
    assert finding.message.startswith("7 of 28 pairs of GPUs have no NVLink")


def test_a_gpu_that_fell_off_the_bus_is_missed() -> None:
    extra = PciGpu(vendor="nvidia", address="0000:99:00.0", numa_node=0)
    devices = Devices(gpus=(*(HEALTHY.devices.gpus if HEALTHY.devices else ()), extra))
    (finding,) = end("gpu-driver-answers", with_(devices=devices), ONE_NODE).findings
    assert finding.message == "9 GPUs are on the PCI bus, the driver lists 8"
