"""Ways between NVIDIA's GPUs, by the matrices and lists of nvidia-smi.

Seen on drivers 550 to 610: cards are columns named NIC0 or, before 530, mlx5_0.
"""

import re
from typing import Final

from k31ctl.core.host import GpuLinks, Pair, Topology, Why
from k31ctl.host.probe import Missed, Probe, whole

_LINK: Final = re.compile(
    r"\s*Link (\d+): (?:([\d.]+) GB/s|<inactive>|.*inactive.*)", re.IGNORECASE
)
_MATRIX_ROW: Final = re.compile(r"\s*((?:GPU|NIC)\d+|mlx5_\w+)\s+(.*)")


def topology(probe: Probe) -> Topology:
    """Links between GPUs by three questions to nvidia-smi; raises Missed where it cannot say."""
    pairs = parse_matrix(probe.run("nvidia-smi", "topo", "-m"))
    return Topology(
        gpu_pairs=tuple(p for p in pairs if p.second.startswith("GPU")),
        nic_pairs=tuple(p for p in pairs if not p.second.startswith("GPU")),
        unreachable=tuple(
            p
            for p in _optional_matrix(probe, "nvidia-smi", "topo", "-p2p", "r")
            if p.link not in ("OK", "X")
        ),
        links=_links(probe),
    )


def _optional_matrix(probe: Probe, *command: str) -> tuple[Pair, ...]:
    try:
        return parse_matrix(probe.run(*command))
    except Missed as missed:
        if missed.kind is Why.SLOW:
            raise
        return ()


def _links(probe: Probe) -> tuple[GpuLinks, ...]:
    try:
        return parse_nvlink(probe.run("nvidia-smi", "nvlink", "-s"))
    except Missed as missed:
        if missed.kind is Why.SLOW:
            raise
        return ()


def parse_matrix(text: str) -> tuple[Pair, ...]:
    """Pairs of a matrix such as ``nvidia-smi topo -m``, each once, seen from a GPU's row."""
    header: list[str] = []
    found = []
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        cells = line.split()
        if not header and cells and cells[0] == "GPU0" and "X" not in cells:
            header = [c for c in cells if re.fullmatch(r"GPU\d+|NIC\d+|mlx5_\w+", c)]
            continue
        row = _MATRIX_ROW.fullmatch(line)
        if row is None or not row[1].startswith("GPU") or row[1] not in header:
            continue
        position = header.index(row[1])
        for place, (other, link) in enumerate(zip(header, row[2].split(), strict=False)):
            if link != "X" and (place > position or not other.startswith("GPU")):
                found.append(Pair(first=row[1], second=other, link=link))
    return tuple(found)


def parse_nvlink(text: str) -> tuple[GpuLinks, ...]:
    """Active and inactive links per GPU, as ``nvidia-smi nvlink -s`` lists them."""
    found: list[tuple[int, list[float], list[int]]] = []
    for line in text.splitlines():
        if line.startswith("GPU "):
            number = whole(line[4:].partition(":")[0])
            found.append((len(found) if number is None else number, [], []))
        elif found and (link := _LINK.fullmatch(line)):
            if link[2]:
                found[-1][1].append(float(link[2]))
            else:
                found[-1][2].append(int(link[1]))
    return tuple(
        GpuLinks(
            gpu=gpu,
            num_active=len(rates),
            inactive=tuple(inactive),
            rate_gb_per_s=min(rates, default=None),
        )
        for gpu, rates, inactive in found
    )
