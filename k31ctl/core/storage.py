"""Where weights lie before an engine starts, and how fast its loader gets them from there."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from k31ctl.core.figure import Basis
from k31ctl.core.hardware import Source
from k31ctl.units import BytesPerS, Seconds
from k31ctl.values import frozen

DEFAULT_READER = "safetensors"


@frozen
class Rate:
    """A rate with its range, and how it is known."""

    low_bytes_per_s: BytesPerS = field(metadata={"key": "low"})
    value_bytes_per_s: BytesPerS = field(metadata={"key": "value"})
    high_bytes_per_s: BytesPerS = field(metadata={"key": "high"})
    basis: Basis
    why: str
    source: str

    def __post_init__(self) -> None:
        """State what cannot be true of a rate, so that a profile cannot say it."""
        if not 0 < self.low_bytes_per_s <= self.value_bytes_per_s <= self.high_bytes_per_s:
            raise ValueError("a rate must have 0 < low <= value <= high")


@frozen
class Span:
    """A time with its range, and how it is known."""

    low_s: Seconds = field(metadata={"key": "low"})
    value_s: Seconds = field(metadata={"key": "value"})
    high_s: Seconds = field(metadata={"key": "high"})
    basis: Basis
    why: str
    source: str

    def __post_init__(self) -> None:
        """State what cannot be true of a time, so that a profile cannot say it."""
        if not 0 <= self.low_s <= self.value_s <= self.high_s:
            raise ValueError("a time must have 0 <= low <= value <= high")


@frozen
class Reader:
    """What an engine's loader reaches on one node.

    ``reads`` is ``shares`` where a node reads each tensor, or its own part of it, once, and
    ``whole`` where every node goes through the whole checkpoint.
    """

    rate: Rate
    reads: Literal["shares", "whole"]


@frozen
class Storage:
    """A place for weights, as one node sees it.

    ``node`` storage is a copy on every node, ``shared`` one copy for all, ``stream`` is read over
    the network at every start without a copy, ``memory`` is host memory that still holds the files
    of an earlier start. ``hydrate`` is the copy from a bucket that the storage needs first.
    """

    id: str
    name: str
    kind: Literal["node", "shared", "stream", "memory"]
    read: Rate
    readers: Mapping[str, Reader]
    hydrate: Rate | None = None
    sources: tuple[Source, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """State what cannot be true of a storage, so that a profile cannot say it."""
        if DEFAULT_READER not in self.readers:
            raise ValueError(f"readers must have {DEFAULT_READER}")


@frozen
class Startup:
    """What an engine does between its start and its first request, beside reading weights.

    Tables are keyed by what ``startup_keys`` lists, or ``default``. ``compile_s`` is for kernels
    that no cache holds yet.
    """

    id: str
    name: str
    process_s: Mapping[str, Span]
    compile_s: Mapping[str, Span]
    autotune_s: Mapping[str, Span]
    graphs_s: Mapping[str, Span]
    sources: tuple[Source, ...]

    def __post_init__(self) -> None:
        """State what cannot be true of a start, so that a profile cannot say it."""
        for table in (self.process_s, self.compile_s, self.autotune_s, self.graphs_s):
            if "default" not in table:
                raise ValueError("every table must have default")


def startup_keys(engine: str, *, architecture: str, num_nodes: int) -> tuple[str, ...]:
    """Keys of a start-up table for one deployment, the most particular first."""
    across = (f"{engine}/nodes",) if num_nodes > 1 else ()
    return (*across, f"{engine}/{architecture}", engine, architecture, "default")


def span(table: Mapping[str, Span], keys: tuple[str, ...]) -> Span:
    """The entry of the first key that the table has."""
    return next(table[key] for key in keys if key in table)
