"""What a node is made of: GPUs, links, disks, and where each of those facts comes from."""

from collections.abc import Mapping
from dataclasses import field
from datetime import date
from typing import Literal

from k31ctl.core.figure import Basis
from k31ctl.units import Bytes, BytesPerS, FlopsPerS, Seconds, Watts
from k31ctl.values import frozen

Vendor = Literal["nvidia", "amd", "cpu"]
MOST_GPUS = 4096
LinkKind = Literal["nvlink", "infinity-fabric", "pcie", "nvlink-c2c", "rdma", "loopback"]


@frozen
class Source:
    """Where a fact was read, and when someone last looked."""

    url: str
    checked: date
    says: str = ""


@frozen
class Mark:
    """Why one value of a profile is softer, or harder, than a datasheet's."""

    basis: Basis
    why: str


@frozen
class Gpu:
    """One GPU, or a processor that stands for one. Rates are dense; memory is what the driver
    reports, not what the box says.

    ``matmul`` names the pair of operands: ``mxfp4`` is MXFP4 weights with MXFP8 activations, which
    Blackwell runs at its FP8 rate, and ``fp4`` is 4-bit on both sides. A missing name means that
    the GPU has no such instruction. ``expert_*`` is what fused MoE kernels on MXFP4 weights reach.
    """

    name: str
    vendor: Vendor
    architecture: str
    num_compute_units: int
    memory_bytes: Bytes = field(metadata={"key": "memory"})
    memory_bandwidth_bytes_per_s: BytesPerS = field(metadata={"key": "memory_bandwidth"})
    achieved_bandwidth_bytes_per_s: BytesPerS | None = field(
        default=None, metadata={"key": "achieved_bandwidth"}
    )
    expert_bandwidth_bytes_per_s: BytesPerS | None = field(
        default=None, metadata={"key": "expert_bandwidth"}
    )
    matmul: Mapping[str, FlopsPerS]
    achieved_matmul: Mapping[str, FlopsPerS] = field(default_factory=dict)
    expert_matmul_flops_per_s: FlopsPerS | None = field(
        default=None, metadata={"key": "expert_matmul"}
    )
    tdp: Watts
    source: Source


@frozen
class Link:
    """One kind of link, with its peak rate one way.

    ``small_all_reduce_s`` is for 16 KiB over the GPUs of the node with the engines' own kernels,
    ``nccl_small_all_reduce_s`` the same with plain NCCL; ``all_reduce_bytes_per_s`` is the bus
    bandwidth of a large one, as nccl-tests counts it. Absent where nobody measured.
    """

    kind: LinkKind
    bandwidth_bytes_per_s: BytesPerS = field(metadata={"key": "bandwidth"})
    per: Literal["gpu", "node"]
    direction: Literal["one-way"]
    all_reduce_bytes_per_s: BytesPerS | None = field(
        default=None, metadata={"key": "all_reduce_bandwidth"}
    )
    all_to_all_bytes_per_s: BytesPerS | None = field(
        default=None, metadata={"key": "all_to_all_bandwidth"}
    )
    small_all_reduce_s: Seconds | None = field(default=None, metadata={"key": "small_all_reduce"})
    nccl_small_all_reduce_s: Seconds | None = field(
        default=None, metadata={"key": "nccl_small_all_reduce"}
    )


@frozen
class Disk:
    """The local disks of a node: how many, how large each, and how fast all of them together.

    ``reader_bandwidth_bytes_per_s`` is what an engine's default safetensors reader gets of it.
    """

    num_disks: int
    capacity_bytes: Bytes = field(metadata={"key": "capacity"})
    read_bandwidth_bytes_per_s: BytesPerS = field(metadata={"key": "read_bandwidth"})
    reader_bandwidth_bytes_per_s: BytesPerS | None = field(
        default=None, metadata={"key": "reader_bandwidth"}
    )


@frozen
class Node:
    """One node, tray or rack that is rented and counted as one.

    ``scale_up_domain_gpus`` is how many GPUs the scale-up link joins: 8 in an HGX box, 72 across
    the trays of a rack, 1 where there is no such link. ``marks`` are keyed by the profile's own
    keys, such as ``gpu.achieved_bandwidth``; what is not marked is as its source states it.
    """

    id: str
    name: str
    gpu: Gpu
    num_gpus: int
    scale_up_domain_gpus: int
    scale_up: Link | None
    network: Link | None
    pcie: Link
    host_memory_bytes: Bytes = field(metadata={"key": "host_memory"})
    disks: Disk | None
    power_per_gpu: Watts | None = None
    sources: tuple[Source, ...]
    marks: Mapping[str, Mark] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """State what cannot be true of a node, so that a profile cannot say it."""
        if not all(1 <= n <= MOST_GPUS for n in (self.num_gpus, self.scale_up_domain_gpus)):
            raise ValueError(f"num_gpus and scale_up_domain_gpus must be from 1 to {MOST_GPUS}")
        if (self.scale_up is None) != (self.scale_up_domain_gpus == 1):
            raise ValueError("scale_up_domain_gpus must be 1 where scale_up is null, else more")
        if not self.sources:
            raise ValueError("sources must name at least one source")

    @property
    def memory_bytes(self) -> int:
        """Device memory of all GPUs of the node, in bytes."""
        return self.num_gpus * self.gpu.memory_bytes
