"""The form of a check of a machine: what it looks at, what it may find, and on what authority."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TypeVar

from k31ctl.core.engine import Engine
from k31ctl.core.finding import Severity
from k31ctl.core.hardware import Node
from k31ctl.core.host import Host
from k31ctl.core.model import Model
from k31ctl.units import show_bytes
from k31ctl.values import frozen

T = TypeVar("T")

Measured = str | int | float | bool | None


@frozen
class Need:
    """What the machine shall serve: its checks depend on this and on nothing else.

    ``nodes`` are the profiles of known hardware, ``expected`` the one that was asked for.
    ``engine_versions`` says of each known release of the engine whether it reads the model.
    """

    model: Model
    engine: Engine
    engine_versions: Mapping[str, bool]
    num_nodes: int
    weight_bytes: int
    expected: Node | None
    nodes: tuple[Node, ...]
    loader_bytes_per_s: float
    loader_source: str
    uses_tiktoken: bool

    @property
    def node_weight_bytes(self) -> float:
        """Weights that one node holds, where all nodes hold as much."""
        return self.weight_bytes / self.num_nodes

    def node_like(self, host: Host) -> Node | None:
        """The profile that was asked for, else the one with this machine's GPUs and their count."""
        if self.expected is not None or host.gpus is None or not host.gpus.gpus:
            return self.expected
        name, count = host.gpus.gpus[0].name, len(host.gpus.gpus)
        alike = [node for node in self.nodes if node.gpu.name == name]
        return min(alike, key=lambda n: (abs(n.num_gpus - count), n.id), default=None)


@frozen
class Fault:
    """One thing that is wrong; ``severity`` only where it is weaker than the rule's."""

    message: str
    remedy: str
    where: str
    severity: Severity | None = None


@frozen
class Verdict:
    """What a rule found: faults, or why it could not look, or in a few words what is fine."""

    faults: tuple[Fault, ...] = ()
    good: str = ""
    skipped: str = ""
    measured: Mapping[str, Measured] = field(default_factory=dict)


@frozen
class Rule:
    """A check: the sections of a machine that it needs, and what it makes of them.

    Without one of ``sections`` it is skipped; those in ``also`` may be absent.
    """

    id: str
    group: str
    severity: Severity
    sections: tuple[str, ...]
    source: str
    judge: Callable[[Host, Need], Verdict]
    also: tuple[str, ...] = ()


def fine(good: str, **measured: Measured) -> Verdict:
    """Nothing is wrong."""
    return Verdict(good=good, measured=measured)


def skipped(why: str) -> Verdict:
    """There is nothing to look at."""
    return Verdict(skipped=why)


def found(*faults: Fault, good: str = "", **measured: Measured) -> Verdict:
    """These faults, or that it is good where there are none."""
    return Verdict(faults=faults, good="" if faults else good, measured=measured)


def known(section: T | None) -> T:
    """A section that the rule's own list of sections says is there."""
    assert section is not None
    return section


def gib(num_bytes: float) -> str:
    """A size as messages write it."""
    return show_bytes(num_bytes)


def listed(names: "list[str]", most: int = 4) -> str:
    """The first few of a list, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
