"""From an empty disk to the first served token: every part, how long, and how it is known.

Parts follow one another. Renting the machine and pulling the container image are not counted.
"""

from dataclasses import replace

from k31ctl.core.deployment import Deployment
from k31ctl.core.estimate import Estimate
from k31ctl.core.figure import Basis
from k31ctl.core.node_reads import node_read_bytes
from k31ctl.core.request import Parts
from k31ctl.core.storage import (
    DEFAULT_READER,
    Rate,
    Reader,
    Span,
    Startup,
    Storage,
    span,
    startup_keys,
)
from k31ctl.errors import RefusedError, UsageError
from k31ctl.units import show
from k31ctl.values import frozen

READ_PART = "read weights"


@frozen
class StartPart:
    """One part of a start, in seconds; ``detail`` says what makes it so long."""

    part: str
    seconds: Estimate
    basis: Basis
    source: str
    detail: str


@frozen
class ColdStart:
    """Parts that follow one another, and what they were computed for."""

    parts: tuple[StartPart, ...]
    storage: Storage
    reader: str
    warm_caches: bool
    download_bytes: int
    copies: int
    node_read_bytes: float

    @property
    def total_s(self) -> Estimate:
        """All parts; at the ends every part is at its end, as a probe's budget wants it."""
        times = [part.seconds for part in self.parts]
        return Estimate(
            value=sum(t.value for t in times),
            low=sum(t.low for t in times),
            high=sum(t.high for t in times),
        )


def cold_start(
    parts: Parts,
    built: Deployment,
    *,
    storage: Storage,
    reader: str | None,
    startup: Startup,
    link: Rate,
    warm_caches: bool,
    first_token_s: Estimate,
) -> ColdStart:
    """The start of a deployment whose weights come over ``link`` to ``storage``.

    ``link`` is what one node gets; nodes with disks of their own download at the same time.
    ``warm_caches`` says that compiled kernels are kept from an earlier start. ``first_token_s`` is
    one prompt's prefill and a decode step. Raises UsageError for a loader that the storage has no
    rate for, RefusedError where the disks are too small.
    """
    chosen = _chosen(storage, reader, parts)
    num_bytes = built.inventory.total_bytes + (parts.draft.weight_bytes if parts.draft else 0)
    num_nodes = -(-built.layout.world // parts.node.num_gpus)
    _check_room(parts, storage, num_bytes)
    share = node_read_bytes(parts.model, engine=parts.engine, layout=built.layout)
    share += num_bytes - built.inventory.total_bytes
    read = float(num_bytes) if chosen.reads == "whole" else share
    keys = startup_keys(
        parts.engine.engine, architecture=parts.node.gpu.architecture, num_nodes=num_nodes
    )
    return ColdStart(
        parts=(
            *_arrival(storage, link, num_bytes),
            _span_part("process start", span(startup.process_s, keys)),
            _read_part(storage, chosen, read, parts),
            _compile_part(span(startup.compile_s, keys), warm_caches=warm_caches),
            _span_part("autotune", span(startup.autotune_s, keys)),
            _span_part("CUDA graphs, warm-up", span(startup.graphs_s, keys)),
            StartPart(
                part="first token",
                seconds=first_token_s,
                basis=Basis.DERIVED,
                source="the speed model",
                detail="one prompt and one decode step",
            ),
        ),
        storage=storage,
        reader=reader or DEFAULT_READER,
        warm_caches=warm_caches,
        download_bytes=num_bytes,
        copies={"node": num_nodes, "shared": 1, "stream": 0, "memory": 0}[storage.kind],
        node_read_bytes=read,
    )


def given_link(bytes_per_s: float) -> Rate:
    """A link as the user stated it; at worst 0.7 of it carries the checkpoint."""
    return Rate(
        low_bytes_per_s=0.7 * bytes_per_s,
        value_bytes_per_s=bytes_per_s,
        high_bytes_per_s=bytes_per_s,
        basis=Basis.DERIVED,
        why="the link as given, filled; the other end may be slower",
        source="--link-rate",
    )


def _chosen(storage: Storage, name: str | None, parts: Parts) -> Reader:
    """The loader on this storage; local disks that a node's own profile measured go before."""
    if name is not None and name not in storage.readers:
        raise UsageError(
            f"no rate of the loader {name[:40]!r} on {storage.id} is known",
            where="--loader",
            remedy=f"use one of {', '.join(storage.readers)}, or a storage profile of your own",
        )
    reader = storage.readers[name or DEFAULT_READER]
    disks = parts.node.disks
    own = disks.reader_bandwidth_bytes_per_s if disks else None
    if storage.kind != "node" or (name or DEFAULT_READER) != DEFAULT_READER or own is None:
        return reader
    known = reader.rate
    mark = parts.node.marks.get("disks.reader_bandwidth")
    measured = replace(
        known,
        value_bytes_per_s=own,
        low_bytes_per_s=min(own, own * known.low_bytes_per_s / known.value_bytes_per_s),
        high_bytes_per_s=max(
            own * known.high_bytes_per_s / known.value_bytes_per_s, known.high_bytes_per_s
        ),
        why=mark.why if mark else known.why,
        source=f"profile {parts.node.id}",
    )
    return replace(reader, rate=measured)


def _check_room(parts: Parts, storage: Storage, num_bytes: int) -> None:
    if storage.kind != "node":
        return
    disks = parts.node.disks
    room = disks.num_disks * disks.capacity_bytes if disks else 0
    if room < num_bytes:
        raise RefusedError(
            f"{show(room, 'B')} of local disks do not hold {show(num_bytes, 'B')} of weights",
            where=f"{parts.node.id}, --storage {storage.id}",
            remedy="choose shared or streamed storage; k31ctl profiles list storage shows them",
            rule="storage-room",
            source=f"profile {parts.node.id}",
        )


def _arrival(storage: Storage, link: Rate, num_bytes: int) -> list[StartPart]:
    """The checkpoint's way to the storage that the engine reads from."""
    if storage.kind == "memory":
        return [_nothing("download", "the files are there from an earlier start", storage)]
    if storage.kind == "stream":
        return [_nothing("download", "streamed at every start: see read weights", storage)]
    where = "to every node at once" if storage.kind == "node" else "once for all nodes"
    found = [_rate_part("download", num_bytes, link, where)]
    found.append(
        StartPart(
            part="verification",
            seconds=Estimate(value=0.0, low=0.0, high=0.0),
            basis=Basis.ASSUMED,
            source="hashed while streaming",
            detail="SHA-256 keeps up with the link",
        )
    )
    if storage.hydrate is not None:
        found.append(_rate_part("copy from the bucket", num_bytes, storage.hydrate, "once"))
    return found


def _nothing(part: str, detail: str, storage: Storage) -> StartPart:
    return StartPart(
        part=part,
        seconds=Estimate(value=0.0, low=0.0, high=0.0),
        basis=Basis.DERIVED,
        source=f"profile {storage.id}",
        detail=detail,
    )


def _rate_part(part: str, num_bytes: float, rate: Rate, where: str) -> StartPart:
    said = f"{show(num_bytes, 'B')} {where} at {show(rate.value_bytes_per_s, 'B/s')}"
    return StartPart(
        part=part,
        seconds=Estimate(
            value=num_bytes / rate.value_bytes_per_s,
            low=num_bytes / rate.high_bytes_per_s,
            high=num_bytes / rate.low_bytes_per_s,
        ),
        basis=rate.basis,
        source=rate.source,
        detail=said,
    )


def _read_part(storage: Storage, reader: Reader, num_bytes: float, parts: Parts) -> StartPart:
    """Reading at the storage's rate or the loader's, whichever is less."""
    of_storage = storage.read
    disks = parts.node.disks
    if storage.kind == "node" and disks is not None:
        most = disks.read_bandwidth_bytes_per_s
        of_storage = replace(
            of_storage, value_bytes_per_s=most, low_bytes_per_s=most, high_bytes_per_s=2 * most
        )
    slower = min(of_storage, reader.rate, key=lambda rate: rate.value_bytes_per_s)
    rate = replace(
        slower,
        low_bytes_per_s=min(of_storage.low_bytes_per_s, reader.rate.low_bytes_per_s),
        high_bytes_per_s=max(
            slower.value_bytes_per_s,
            min(of_storage.high_bytes_per_s, reader.rate.high_bytes_per_s),
        ),
    )
    return _rate_part(READ_PART, num_bytes, rate, "on each node")


def _span_part(part: str, known: Span) -> StartPart:
    return StartPart(
        part=part,
        seconds=Estimate(value=known.value_s, low=known.low_s, high=known.high_s),
        basis=known.basis,
        source=known.source,
        detail=known.why,
    )


def _compile_part(known: Span, *, warm_caches: bool) -> StartPart:
    if not warm_caches:
        return _span_part("compile", known)
    return StartPart(
        part="compile",
        seconds=Estimate(value=0.0, low=0.0, high=known.low_s),
        basis=known.basis,
        source=known.source,
        detail="kept from an earlier start",
    )
