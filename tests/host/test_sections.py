"""The sections of a machine that come out of /proc, /sys and small tools."""

import socket
from pathlib import Path

import pytest

from k31ctl.core.host import Clock, Interface, KernelFault, Limits, Segments, Why
from k31ctl.host.containers import containers
from k31ctl.host.describe import Asked, describe
from k31ctl.host.devices import devices, kernel_log, parse_kernel_log
from k31ctl.host.network import clock, fabric_manager, network, peers, rdma
from k31ctl.host.probe import Missed
from k31ctl.host.system import filesystem_of, home_filesystem, limits, memory, shm, system
from tests.host.machine import Machine, add_gpus, add_port, bare, lock, recorded


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return bare(tmp_path)


def test_memory_is_read_with_the_cgroup_s_limit(machine: Machine) -> None:
    found = memory(machine.probe())
    assert (found.total_bytes, found.limit_bytes) == (2_113_374_132 * 1024, None)
    assert (found.transparent_huge_pages, found.num_numa_nodes) == ("madvise", 2)
    assert found.numa_balancing is False
    machine.file("/sys/fs/cgroup/memory.max", "68719476736\n")
    assert memory(machine.probe()).usable_bytes == 2**36
    machine.file("/sys/fs/cgroup/memory.max", "max\n")
    assert memory(machine.probe()).limit_bytes is None
    machine.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory(machine.probe()).limit_bytes is None  # version 1 says so where there is none


def test_huge_pages_that_are_set_aside_are_counted(machine: Machine) -> None:
    text = "MemTotal: 1000 kB\nHugePages_Total: 512\nHugepagesize: 2048 kB\n"
    found = memory(machine.file("/proc/meminfo", text).probe())
    assert found.reserved_huge_bytes == 2**30
    assert found.available_bytes == 0


def test_garbage_in_place_of_memory_is_missed(machine: Machine) -> None:
    with pytest.raises(Missed, match="no MemTotal"):
        memory(machine.file("/proc/meminfo", b"\xff\x00:\n::").probe())


def test_segments_are_stale_unless_a_process_maps_or_holds_them(machine: Machine) -> None:
    for name, size in (
        ("psm_1", 10),
        ("psm_2", 20),
        ("nccl-abc", 30),
        ("torch_9", 40),
        ("mine", 5),
    ):
        machine.file(f"/dev/shm/{name}", b"x" * size)
    machine.file("/proc/77/maps", "7f00-7f01 rw-s 0 00:1a 5 /dev/shm/psm_1\n")
    (machine.root / "proc/77/fd").mkdir()
    (machine.root / "proc/77/fd/3").symlink_to("/dev/shm/nccl-abc")
    assert shm(machine.probe()).stale == Segments(
        num_segments=2, total_bytes=60, example="torch_9", all_holders_seen=True
    )


def test_a_machine_without_shm_says_so(tmp_path: Path) -> None:
    with pytest.raises(Missed, match="/dev/shm"):
        shm(Machine(tmp_path).probe())


def test_limits_are_those_of_the_process_the_tree_shows(machine: Machine) -> None:
    assert limits(machine.probe()) == Limits(
        memlock_bytes=None, nofile=1_048_576, stack_bytes=67_108_864
    )


def test_the_machine_names_itself(machine: Machine) -> None:
    found = system(machine.probe())
    assert (found.kernel, found.distribution) == ("6.8.0-79-generic", "Ubuntu 24.04.2 LTS")
    assert (found.num_processors, found.processor) == (2, "Intel(R) Xeon(R) 6776P")


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/root", "xfs"), ("/home/me", "nfs4"), ("/homes", "xfs"), ("/a b/c", "tmpfs")],
)
def test_a_path_is_on_the_mount_that_is_nearest_above(path: str, kind: str) -> None:
    mounts = "/dev/md0 / xfs rw 0 0\nnas:/home /home nfs4 rw 0 0\nt /a\\040b tmpfs rw 0 0\nbroken\n"
    assert filesystem_of(path, mounts) == kind


def test_home_is_on_its_own_file_system(machine: Machine) -> None:
    assert home_filesystem(machine.probe(HOME="/home/me")) == "nfs4"


def test_gpus_are_found_on_the_bus_and_displays_are_not(machine: Machine) -> None:
    found = devices(add_gpus(machine, "0x10de").probe())
    assert len(found.gpus) == 8
    assert {gpu.vendor for gpu in found.gpus} == {"nvidia"}
    assert [gpu.numa_node for gpu in found.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_device_files_that_are_locked_are_told(machine: Machine) -> None:
    machine.file("/dev/nvidia0").file("/dev/kfd").file("/dev/dri/renderD128")
    lock(machine.root / "dev/kfd")
    assert devices(machine.probe()).locked == ("/dev/kfd",)


def test_faults_of_gpus_are_found_in_the_kernel_s_log() -> None:
    found = parse_kernel_log(recorded("dmesg.txt"))
    assert [(f.code, f.bus_id) for f in found] == [
        (31, "0000:02:00.0"),
        (79, "0000:04:00.0"),
        (0, "0000:05:00.0"),
    ]
    assert found[1] == KernelFault(
        code=79, bus_id="0000:04:00.0", text="Xid 79, GPU has fallen off the bus."
    )


def test_the_log_comes_from_the_journal_or_a_file_where_dmesg_is_refused(machine: Machine) -> None:
    machine.script("dmesg", "echo 'read kernel buffer failed' >&2; exit 1")
    with pytest.raises(Missed) as caught:
        kernel_log(machine.probe())
    assert caught.value.kind is Why.DENIED
    machine.file("/var/log/kern.log", recorded("dmesg.txt"))
    assert len(kernel_log(machine.probe())) == 3
    machine.script("journalctl", "echo 'NVRM: Xid (PCI:0000:01:00): 48, pid=1'")
    assert [fault.code for fault in kernel_log(machine.probe())] == [48]


def test_rdma_ports_are_read_from_sysfs(machine: Machine) -> None:
    add_port(machine, "mlx5_0")
    add_port(
        machine, "mlx5_1", state="1: DOWN", phys_state="3: Disabled", rate="10 Gb/sec (4X SDR)"
    )
    machine.file("/sys/class/infiniband/mlx5_0/device/net/ib0/speed", "1\n")
    found = rdma(machine.probe())
    up, down = found.ports
    assert (up.state, up.physical_state, up.rate_gbit_per_s) == ("ACTIVE", "LinkUp", 800.0)
    assert (up.netdev, up.board, up.numa_node) == ("ib0", "MT4131", None)
    assert (down.state, down.physical_state, down.rate_gbit_per_s) == ("DOWN", "Disabled", 10.0)
    assert found.peer_memory


def test_an_open_driver_lets_cards_read_gpus_without_a_module(machine: Machine) -> None:
    machine.file("/proc/modules", "nvidia 1 0 - Live 0x0\n")
    assert not rdma(machine.probe()).peer_memory
    version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n"
    assert rdma(machine.file("/proc/driver/nvidia/version", version).probe()).peer_memory


def test_interfaces_names_and_ports_are_read(machine: Machine) -> None:
    machine.file("/sys/class/net/docker0/operstate", "up\n")
    machine.file("/proc/net/tcp6", "head\n 0: 00:1F41 0:0 01 0\n broken\n 2: :8000 0:0 0A 0\n")
    found = network(machine.probe())
    assert found.interfaces == (
        Interface(name="docker0", is_up=True, virtual=True),
        Interface(name="eth0", is_up=True, virtual=False, speed_mbit_per_s=100_000),
        Interface(name="lo", is_up=True, virtual=True),
    )
    assert (found.hostname, found.hostname_is_loopback) == ("node1", False)
    assert found.listening == (22,)  # the others are open, broken, and not hexadecimal
    machine.file("/proc/net/tcp6", f"head\n 0: {'0' * 32}:1F40 {'0' * 32}:0000 0A 0:0\n")
    machine.file("/etc/hosts", "127.0.1.1 node1 # Debian's own\n")
    found = network(machine.probe())
    assert found.listening == (22, 8000)
    assert found.hostname_is_loopback


def test_the_clock_is_told_by_chrony_or_by_systemd(machine: Machine) -> None:
    assert clock(machine.probe()) == Clock(
        synchronised=True, told_by="chronyc tracking", offset_s=-0.000012345
    )
    (machine.bin / "chronyc").unlink()
    machine.tool("timedatectl", {"show": "Timezone=UTC\nNTP=yes\nNTPSynchronized=no\n"})
    assert clock(machine.probe()) == Clock(synchronised=False, told_by="timedatectl show")
    machine.tool("timedatectl", {"show": "garbage"})
    with pytest.raises(Missed, match="chronyc is not installed; timedatectl prints something"):
        clock(machine.probe())


@pytest.mark.parametrize(
    ("told", "state"),
    [
        ("LoadState=loaded\nActiveState=active\n", "active"),
        ("LoadState=loaded\nActiveState=failed\n", "failed"),
        ("LoadState=not-found\nActiveState=inactive\n", None),
        ("", None),
    ],
)
def test_the_fabric_manager_s_state_is_systemd_s(
    machine: Machine, told: str, state: str | None
) -> None:
    machine.tool("systemctl", {"show nvidia-fabricmanager --property=LoadState,ActiveState": told})
    if state is None:
        with pytest.raises(Missed):
            fabric_manager(machine.probe())
    else:
        assert fabric_manager(machine.probe()) == state


def test_container_runtimes_are_told_with_their_versions(machine: Machine) -> None:
    machine.tool("podman", {"--version": "podman version 4.9.3\n"})
    machine.file("/var/run/cdi/nvidia.yaml", "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\n")
    found = containers(machine.probe())
    assert found.runtimes == {"docker": "28.2.2", "podman": "4.9.3"}
    assert (found.toolkit, found.cdi, found.inside) == ("1.17.8", True, False)
    assert "nvidia" in found.docker_runtimes


@pytest.mark.parametrize(
    ("body", "trouble"),
    [
        ("echo 'Cannot connect to the Docker daemon' >&2; exit 1", "Cannot connect"),
        ("echo garbage", "something else than JSON"),
        ("echo '[]'", "something else than it should"),
        ("""echo '{"ServerErrors": ["permission denied"]}'""", "permission denied"),
    ],
)
def test_a_docker_that_does_not_answer_is_told(machine: Machine, body: str, trouble: str) -> None:
    found = containers(machine.script("docker", body).probe())
    assert trouble in found.docker_trouble
    assert found.runtimes == {"docker": "unknown"}


def test_a_container_knows_that_it_is_one(machine: Machine) -> None:
    assert containers(machine.file("/proc/1/cgroup", "0::/kubepods/pod1\n").probe()).inside


def test_peers_are_reached_refused_or_unknown() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        open_port, closed_port = server.getsockname()[1], closed.getsockname()[1]
        there, refused, nameless = peers(
            [("127.0.0.1", open_port), ("127.0.0.1", closed_port), ("x" * 300, 1)],
            timeout_s=60.0,
        )
    assert there.round_trip_s is not None
    assert there.why == ""
    assert refused.round_trip_s is not None
    assert refused.why == "nothing listens yet"
    assert (nameless.round_trip_s, nameless.why) == (None, "the name has no address")


def test_a_bare_folder_describes_nothing_and_fails_at_nothing(tmp_path: Path) -> None:
    sections = ("system", "devices", "memory", "shm", "rdma", "network", "containers", "clock")
    host = describe(Machine(tmp_path).probe(), Asked(), sections=sections)
    assert {m.section for m in host.missed} == {"memory", "shm", "clock"}
