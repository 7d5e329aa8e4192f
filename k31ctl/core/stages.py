"""Which layers the embedded engine puts on which device, and what each of them then holds."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from k31ctl.core.embedded import Held, Load, MemoryPlan, memory_plan
from k31ctl.core.engine import Engine
from k31ctl.core.figure import Line
from k31ctl.core.model import Model
from k31ctl.values import frozen

# Every stage has this room once, whatever its layers are.
_ROOM: Final = ("activations_bytes", "workspace_bytes")


@frozen
class Place:
    """A device by its name, and the bytes of it that one stage may take."""

    device: str
    free_bytes: int


def staged(
    model: Model,
    engine: Engine,
    held: Held,
    load: Load,
    *,
    places: Sequence[Place],
    block: int,
) -> tuple[MemoryPlan, ...]:
    """One plan for each device that gets layers, in a row; the fullest is as empty as can be.

    Blocks of ``block`` layers, between which Attention Residuals take a snapshot, stay whole where
    they fit so; 0 where there are none.
    """
    found: tuple[MemoryPlan, ...] = ()
    for size in dict.fromkeys((block or 1, 1)):
        runs = _runs(held.layers, size)
        used = places[: len(runs)]
        parts = [_part(held, run) for run in runs]
        counts = balanced(
            [_growing_bytes(model, engine, part, load) for part in parts],
            rooms=[place.free_bytes for place in used],
        )
        plans, begin = [], 0
        for place, count in zip(used, counts, strict=True):
            layers = range(runs[begin].start, runs[begin + count - 1].stop)
            part, free = _part(held, layers), place.free_bytes
            plans.append(
                memory_plan(model, engine, part, load, device=place.device, free_bytes=free)
            )
            begin += count
        found = found or tuple(plans)
        if all(plan.fits for plan in plans):
            return tuple(plans)
    return found


def together(stages: Sequence[MemoryPlan]) -> MemoryPlan:
    """All stages as one plan, their lines added up by name."""
    if len(stages) == 1:
        return stages[0]
    lines: dict[str, Line] = {}
    for line in (line for stage in stages for line in stage.lines):
        lines.setdefault(line.key, line)
    return replace(
        stages[0],
        device=", ".join(stage.device for stage in stages),
        free_bytes=sum(stage.free_bytes for stage in stages),
        layers=range(stages[0].layers.start, stages[-1].layers.stop),
        lines=tuple(
            replace(line, num_bytes=sum(stage.line_bytes(key) for stage in stages))
            for key, line in lines.items()
        ),
        bytes_per_token=sum(stage.bytes_per_token for stage in stages),
        state_bytes_per_request=sum(stage.state_bytes_per_request for stage in stages),
    )


def balanced(sizes: Sequence[int], *, rooms: Sequence[int]) -> tuple[int, ...]:
    """How many of the sizes, in a row, go into each room so that the largest share is least.

    There are no fewer sizes than rooms, and each room gets one at least.
    """
    sums = [sum(sizes[:count]) for count in range(len(sizes) + 1)]

    @cache
    def best(begin: int, room: int) -> tuple[float, tuple[int, ...]]:
        after = len(rooms) - room - 1
        options = []
        for end in range(begin + 1, len(sizes) - after + 1) if after else (len(sizes),):
            rest, counts = best(end, room + 1) if after else (0.0, ())
            share = (sums[end] - sums[begin]) / max(1, rooms[room])
            options.append((max(share, rest), (end - begin, *counts)))
        return min(options)

    return best(0, 0)[1]


def _runs(layers: range, size: int) -> list[range]:
    """The layers in blocks of so many, counted from layer 0."""
    starts = [layer for layer in layers if layer == layers.start or layer % size == 0]
    return [range(a, b) for a, b in zip(starts, (*starts[1:], layers.stop), strict=True)]


def _part(held: Held, layers: range) -> Held:
    """What is held of some of the layers: the image encoder stands in front of the first."""
    is_first, is_last = layers.start == held.layers.start, layers.stop == held.layers.stop
    return replace(
        held,
        layers=layers,
        with_embedding=held.with_embedding and is_first,
        with_head=held.with_head and is_last,
        with_vision=held.with_vision and is_first,
    )


def _growing_bytes(model: Model, engine: Engine, part: Held, load: Load) -> int:
    """What a device holds for these layers alone, without the room that every stage computes in."""
    plan = memory_plan(model, engine, part, load, device="cpu", free_bytes=0)
    return sum(line.num_bytes for line in plan.lines if line.key not in _ROOM)
