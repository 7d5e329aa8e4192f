"""Step device: is its arithmetic right, and how fast are copies and products."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from torch import Tensor

from k31ctl.catalog.hardware import load_node, load_nodes
from k31ctl.core.hardware import Node
from k31ctl.core.ladder import Measure, measure
from k31ctl.smoke.session import Found, Session

# A healthy GPU copies at 0.8 to 0.9 of its datasheet; less than this says that something is off.
_LEAST_COPY_FRACTION: Final = 0.75
_LEAST_LINK_FRACTION: Final = 0.65
_REPEATS: Final = 4
_PRODUCT_ERROR: Final = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


def device(session: Session) -> Found:
    """A product against float64, copies, and links between GPUs where there are several."""
    at = session.device
    node = _node(session)
    measures = [*_product(session, node), _copy(at, node)]
    faults: list[str] = []
    if at.type == "cuda" and torch.cuda.device_count() > 1:
        faults, links = _links(node)
        measures += links
    notes: tuple[str, ...] = ()
    if node is not None:
        notes = (
            f"bounds are {_LEAST_COPY_FRACTION:.0%} of {node.id}'s memory bandwidth and "
            f"{_LEAST_LINK_FRACTION:.0%} of its links (assumed)",
        )
    elif at.type == "cuda":
        notes = ("no hardware profile has this GPU: rates are told and not judged",)
    detail = "products agree with float64"
    return Found(detail=detail, measures=tuple(measures), notes=notes, faults=tuple(faults))


def _node(session: Session) -> Node | None:
    """The hardware profile that was named, or the first with a GPU of this name."""
    if session.task.on:
        return load_node(session.store, session.task.on)
    if session.device.type == "cpu":
        return None
    name = torch.cuda.get_device_name(session.device)
    return next((node for node in load_nodes(session.store) if node.gpu.name == name), None)


def _product(session: Session, node: Node | None) -> list[Measure]:
    at, dtype = session.device, session.dtype
    n = 512 if at.type == "cpu" else 8192
    random = torch.Generator().manual_seed(5)
    a, b = (torch.randn(n, n, generator=random).to(at, dtype) for _ in range(2))
    rows = slice(0, 256)
    error = relative(a[rows] @ b, a[rows].double() @ b.double())
    seconds = fastest(lambda: a @ b, at)
    name = "bf16" if dtype == torch.bfloat16 else "float32"
    found = [
        measure("product, error", error, at_most=_PRODUCT_ERROR[dtype]),
        measure(f"product in {name}", 2 * n**3 / seconds / 1e12, unit="TFLOP/s"),
    ]
    if node is not None and name in node.gpu.matmul:
        share = 2 * n**3 / seconds / node.gpu.matmul[name]
        found.append(measure("share of the datasheet's rate", share))
    return found


def _copy(at: torch.device, node: Node | None) -> Measure:
    """Bytes read and written per second; the source holds numbers, so that pages are real."""
    num_bytes = 64 * 2**20 if at.type == "cpu" else 2**30
    source = torch.arange(num_bytes // 4, device=at, dtype=torch.int32)
    target = torch.empty_like(source)
    seconds = fastest(lambda: target.copy_(source), at)
    least = None
    if node is not None and at.type == "cuda":
        least = _LEAST_COPY_FRACTION * node.gpu.memory_bandwidth_bytes_per_s / 1e9
    return measure("copy", 2 * num_bytes / seconds / 1e9, unit="GB/s", at_least=least)


def _links(node: Node | None) -> tuple[list[str], list[Measure]]:
    """Copies from every GPU to every other one arrive whole; the slowest of them."""
    faults, slowest = [], float("inf")
    count, num_bytes = torch.cuda.device_count(), 2**28
    for first in range(count):
        source = torch.arange(num_bytes // 4, device=f"cuda:{first}", dtype=torch.int32)
        for second in set(range(count)) - {first}:
            there = torch.empty_like(source, device=f"cuda:{second}")
            seconds = fastest(partial(there.copy_, source), there.device)
            slowest = min(slowest, num_bytes / seconds / 1e9)
            if not torch.equal(there.to(source.device), source):
                faults.append(f"a copy from GPU {first} to GPU {second} arrives changed")
    least = None
    if node is not None and node.scale_up is not None:
        least = _LEAST_LINK_FRACTION * node.scale_up.bandwidth_bytes_per_s / 1e9
    return faults, [measure("slowest link, one way", slowest, unit="GB/s", at_least=least)]


def fastest(run: Callable[[], object], at: torch.device) -> float:
    """Seconds of the fastest of some runs, the first one aside."""
    run()
    found = float("inf")
    for _ in range(_REPEATS):
        _wait(at)
        begun = time.perf_counter()
        run()
        _wait(at)
        found = min(found, time.perf_counter() - begun)
    return found


def _wait(at: torch.device) -> None:
    if at.type == "cuda":
        torch.cuda.synchronize(at)


def relative(found: Tensor, expected: Tensor) -> float:
    """The largest difference over the largest value; not finite where either is not."""
    expected = expected.double()
    return float((found.double() - expected).abs().max() / expected.abs().max())
