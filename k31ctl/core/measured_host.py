"""Rates that were measured on a machine, and the node that they make."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date

from k31ctl.core.figure import Basis
from k31ctl.core.hardware import Disk, Gpu, Link, Mark, Node, Source
from k31ctl.values import frozen

HOW = "measured on this machine by k31ctl bench hw"


@frozen
class Rate:
    """One measured rate in base units, its spread over repeats, and how it was taken.

    ``value`` is the median; ``low`` and ``high`` are the slowest and the fastest repeat.
    """

    value: float
    low: float
    high: float
    how: str


@frozen
class HostRates:
    """What was measured; what could not be is in ``not_measured`` with the reason.

    Rates are bytes or operations per second: of all cores reading or copying memory, of matrix
    products by the name of their operands, of the disk that a folder lies on, and of one TCP
    stream over loopback.
    """

    processor: str
    num_cores: int
    memory_bytes: int
    read: Rate
    copy: Rate
    matmul: Mapping[str, Rate]
    disk: Rate | None
    disk_folder: str
    disk_capacity_bytes: int
    loopback: Rate
    gpus: "GpuRates | None"
    not_measured: Mapping[str, str]


@frozen
class GpuRates:
    """What was measured on the GPUs: memory of the slowest, one link between two of them."""

    name: str
    num_gpus: int
    copy: Rate
    matmul: Mapping[str, Rate]
    link: Rate | None
    host_link: Rate | None


def processor_node(rates: HostRates, *, node_id: str, today: date) -> Node:
    """The machine's processor as the device of a node: for engines that run without GPUs.

    Its own rates stand for the peaks of a datasheet. Where float32 products are the faster ones,
    as on processors without bf16 instructions, they stand for those of bf16.
    """
    source = Source(url="k31ctl bench hw", checked=today, says=rates.processor)
    matmul = {name: rate.value for name, rate in sorted(rates.matmul.items())}
    marks = {
        "gpu.memory_bandwidth": _mark(rates.read, "no datasheet is known: the measured rate"),
        "gpu.achieved_bandwidth": _mark(rates.read),
        "gpu.tdp": Mark(basis=Basis.ASSUMED, why="not known, and not measured"),
        "pcie": _mark(rates.loopback, "no link between devices is here"),
    }
    marks |= {f"gpu.matmul.{name}": _mark(rate) for name, rate in rates.matmul.items()}
    single = rates.matmul.get("fp32")
    if single is not None and single.value > matmul.get("bf16", 0.0):
        matmul = {**matmul, "bf16": single.value}
        marks["gpu.matmul.bf16"] = _mark(
            single, "bf16 is slower here, or was not measured: the float32 rate"
        )
    if rates.disk is not None:
        marks["disks.read_bandwidth"] = _mark(rates.disk)
    return Node(
        id=node_id,
        name=f"{rates.processor}, {rates.num_cores} cores",
        gpu=Gpu(
            name=rates.processor,
            vendor="cpu",
            architecture="cpu",
            num_compute_units=rates.num_cores,
            memory_bytes=rates.memory_bytes,
            memory_bandwidth_bytes_per_s=rates.read.value,
            achieved_bandwidth_bytes_per_s=rates.read.value,
            matmul=matmul,
            achieved_matmul=matmul,
            tdp=0.0,
            source=source,
        ),
        num_gpus=1,
        scale_up_domain_gpus=1,
        scale_up=None,
        network=None,
        pcie=Link(
            kind="loopback",
            bandwidth_bytes_per_s=rates.loopback.value,
            per="node",
            direction="one-way",
        ),
        host_memory_bytes=rates.memory_bytes,
        disks=_disks(rates),
        sources=(source,),
        marks=marks,
        notes=("one processor stands for a GPU: its memory is the machine's",),
    )


def gpu_node(known: Node, rates: HostRates, *, node_id: str, today: date) -> Node:
    """A node that is known with the rates that its own GPUs and disks were measured at."""
    found = rates.gpus
    assert found is not None
    source = Source(url="k31ctl bench hw", checked=today, says=f"{found.num_gpus} x {found.name}")
    marks = {
        **known.marks,
        "gpu.achieved_bandwidth": _mark(found.copy),
        **{f"gpu.achieved_matmul.{name}": _mark(rate) for name, rate in found.matmul.items()},
    }
    gpu = replace(
        known.gpu,
        achieved_bandwidth_bytes_per_s=found.copy.value,
        achieved_matmul={
            **known.gpu.achieved_matmul,
            **{name: rate.value for name, rate in found.matmul.items()},
        },
    )
    pcie = known.pcie
    if found.host_link is not None:
        pcie = replace(pcie, bandwidth_bytes_per_s=found.host_link.value)
        marks["pcie.bandwidth"] = _mark(found.host_link)
    scale_up = known.scale_up
    if found.link is not None and scale_up is not None:
        scale_up = replace(scale_up, bandwidth_bytes_per_s=found.link.value)
        marks["scale_up.bandwidth"] = _mark(found.link)
    if rates.disk is not None:
        marks["disks.read_bandwidth"] = _mark(rates.disk)
    return replace(
        known,
        id=node_id,
        gpu=gpu,
        pcie=pcie,
        scale_up=scale_up,
        disks=_disks(rates),
        sources=(*known.sources, source),
        marks=marks,
    )


def _disks(rates: HostRates) -> Disk | None:
    if rates.disk is None:
        return None
    return Disk(
        num_disks=1,
        capacity_bytes=rates.disk_capacity_bytes,
        read_bandwidth_bytes_per_s=rates.disk.value,
    )


def _mark(rate: Rate, instead: str = "") -> Mark:
    basis = Basis.ASSUMED if instead else Basis.MEASURED
    return Mark(basis=basis, why=f"{instead}: {rate.how}" if instead else f"{HOW}: {rate.how}")
