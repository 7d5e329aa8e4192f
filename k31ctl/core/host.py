"""What a machine is made of, as far as serving a model depends on it.

Every section may be absent; ``missed`` then says why. Nothing here judges.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from k31ctl.values import frozen


class Why(StrEnum):
    """Why a section is absent: no such tool or file, a failure, no answer in time, no right."""

    ABSENT = "absent"
    FAILED = "failed"
    SLOW = "slow"
    DENIED = "denied"


@frozen
class MissedSection:
    """A section that could not be read."""

    section: str
    kind: Why
    why: str


@frozen
class GpuProcess:
    """A process that holds memory of a GPU."""

    pid: int
    name: str
    memory_bytes: int | None


@frozen
class PcieLink:
    """A GPU's link to the host; ``host_generation`` is the most that the slot offers."""

    width: int
    max_width: int
    generation: int | None = None
    max_generation: int | None = None
    host_generation: int | None = None


@frozen
class HostGpu:
    """One GPU as its driver describes it; None is what the driver does not say.

    ``partition`` names a slicing such as MIG or CPX and is empty for a whole GPU. ``fabric`` is
    the state of its NVLink fabric. ``repairs`` are what its memory waits for or failed at.
    """

    index: int
    vendor: str
    name: str
    bus_id: str
    memory_bytes: int
    used_bytes: int | None = None
    architecture: str | None = None
    persistence: bool | None = None
    partition: str = ""
    ecc_on: bool | None = None
    ecc_uncorrected: int | None = None
    repairs: tuple[str, ...] = ()
    recovery: str = ""
    link: PcieLink | None = None
    slowed_by: tuple[str, ...] = ()
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    fabric: str = ""
    processes: tuple[GpuProcess, ...] = ()


@frozen
class Gpus:
    """All GPUs that one driver lists; ``told_by`` is the tool that was asked."""

    gpus: tuple[HostGpu, ...]
    driver: str
    told_by: str
    cuda: str | None = None


@frozen
class PciGpu:
    """A GPU on the PCI bus, whether or not a driver answers for it."""

    vendor: str
    address: str
    numa_node: int | None


@frozen
class Devices:
    """GPUs on the bus, and device files that this user may not open."""

    gpus: tuple[PciGpu, ...]
    locked: tuple[str, ...] = ()


@frozen
class Pair:
    """How two GPUs, or a GPU and a network card, reach each other."""

    first: str
    second: str
    link: str


@frozen
class GpuLinks:
    """The NVLinks of one GPU."""

    gpu: int
    num_active: int
    inactive: tuple[int, ...]
    rate_gb_per_s: float | None


@frozen
class Topology:
    """Links between GPUs, from GPUs to network cards, and pairs without peer-to-peer access."""

    gpu_pairs: tuple[Pair, ...]
    nic_pairs: tuple[Pair, ...] = ()
    unreachable: tuple[Pair, ...] = ()
    links: tuple[GpuLinks, ...] = ()


@frozen
class KernelFault:
    """A line of the kernel's log about a GPU: an Xid of NVIDIA, or an error of amdgpu (code 0)."""

    code: int
    bus_id: str
    text: str


@frozen
class RdmaPort:
    """One port of an RDMA device."""

    device: str
    port: int
    state: str
    physical_state: str
    rate_gbit_per_s: float | None
    link_layer: str
    firmware: str = ""
    board: str = ""
    netdev: str = ""
    numa_node: int | None = None


@frozen
class Rdma:
    """RDMA ports, and whether the kernel lets GPUs be read by them."""

    ports: tuple[RdmaPort, ...]
    peer_memory: bool


@frozen
class Memory:
    """Host memory in bytes; ``limit_bytes`` is the cgroup's, None where there is none."""

    total_bytes: int
    available_bytes: int
    limit_bytes: int | None
    reserved_huge_bytes: int
    transparent_huge_pages: str
    num_numa_nodes: int
    numa_balancing: bool | None

    @property
    def usable_bytes(self) -> int:
        """What a process may have at most."""
        return min(self.total_bytes, self.limit_bytes or self.total_bytes)


@frozen
class Segments:
    """Shared memory that engines leave behind: how many, how much, and one name."""

    num_segments: int
    total_bytes: int
    example: str
    all_holders_seen: bool


@frozen
class Shm:
    """``/dev/shm``, and what lies there that no running process has open."""

    size_bytes: int
    free_bytes: int
    stale: Segments


@frozen
class Limits:
    """Soft limits of this process; None is unlimited."""

    memlock_bytes: int | None
    nofile: int | None
    stack_bytes: int | None


@frozen
class Containers:
    """Container runtimes by name and version, and how they reach GPUs."""

    inside: bool
    runtimes: Mapping[str, str]
    docker_runtimes: tuple[str, ...] = ()
    toolkit: str = ""
    cdi: bool = False
    docker_trouble: str = ""


@frozen
class Clock:
    """Whether the clock follows a server; None where nobody says."""

    synchronised: bool | None
    told_by: str
    offset_s: float | None = None


@frozen
class Interface:
    """A network interface; ``virtual`` ones have no card behind them."""

    name: str
    is_up: bool
    virtual: bool
    speed_mbit_per_s: int | None = None


@frozen
class Network:
    """Interfaces, the name of this machine, and whether that name means the loopback here."""

    interfaces: tuple[Interface, ...]
    hostname: str
    hostname_is_loopback: bool
    listening: tuple[int, ...]


@frozen
class Software:
    """Python distributions and their versions, in one interpreter."""

    interpreter: str
    distributions: Mapping[str, str]


@frozen
class DiskRead:
    """A measured read: bytes, seconds, and whether it went past the page cache."""

    read_bytes: int
    seconds: float
    direct: bool

    @property
    def bytes_per_s(self) -> float:
        """The rate that was measured."""
        return self.read_bytes / self.seconds


@frozen
class WeightsFolder:
    """Where the weights are, or shall be: safetensors there, room, and how fast it reads."""

    folder: str
    filesystem: str
    free_bytes: int
    present_bytes: int
    num_files: int
    read: DiskRead | None
    unread: str = ""


@frozen
class Peer:
    """Another machine's port: how long a connection took, or why there was none."""

    address: str
    round_trip_s: float | None
    why: str = ""


@frozen
class System:
    """The machine itself."""

    kernel: str
    distribution: str
    machine: str
    num_processors: int
    processor: str


@frozen
class Host:
    """One machine, section by section; an absent one is named in ``missed``."""

    system: System | None = None
    devices: Devices | None = None
    gpus: Gpus | None = None
    topology: Topology | None = None
    kernel_log: tuple[KernelFault, ...] | None = None
    fabric_manager: str | None = None
    rdma: Rdma | None = None
    memory: Memory | None = None
    shm: Shm | None = None
    limits: Limits | None = None
    containers: Containers | None = None
    clock: Clock | None = None
    network: Network | None = None
    environment: Mapping[str, str] | None = None
    home_filesystem: str | None = None
    software: Software | None = None
    weights: WeightsFolder | None = None
    peers: tuple[Peer, ...] | None = None
    missed: tuple[MissedSection, ...] = field(default_factory=tuple)

    def missing(self, section: str) -> MissedSection | None:
        """Why a section is absent, where it is."""
        return next((m for m in self.missed if m.section == section), None)
