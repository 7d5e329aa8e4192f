"""How many bytes of experts the embedded engine keeps, where it streams them from the files."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from k31ctl.core.embedded import EXPERTS, Held, MemoryPlan, held_bytes, memory_line
from k31ctl.core.figure import Line
from k31ctl.core.model import Model
from k31ctl.errors import RefusedError
from k31ctl.units import counted
from k31ctl.values import frozen

# A cache that makes the machine page is slower than none (WASTE's README: 8 times), so that a tenth
# of what is free is left alone.
_SPARE: Final = 10
# While an expert is spelled out, float32 copies of its matrices stand beside what is kept of it.
_COPIES: Final = 4
_FLOAT32_BYTES: Final = 4


@frozen
class Budget:
    """Most bytes of experts: as stored, in host memory, and ready on each device."""

    host_bytes: int
    device_bytes: int


@frozen
class ExpertSizes:
    """Bytes of one expert as stored, ready, and while it is made so; and how many there are."""

    stored_bytes: int
    ready_bytes: int
    making_bytes: int
    count: int


def expert_sizes(model: Model, held: Held) -> ExpertSizes:
    """What one of the experts takes, and how many the held layers have; all are of one shape."""
    numbers = [layer for layer in model.moe_layers if layer in held.layers]
    if not numbers:
        return ExpertSizes(stored_bytes=0, ready_bytes=0, making_bytes=0, count=0)
    resident = replace(held, streams_experts=False)
    family = [t for t in model.templates if t.group in EXPERTS and numbers[0] in t.layers]
    return ExpertSizes(
        stored_bytes=sum(t.tensor_bytes for t in family),
        ready_bytes=sum(held_bytes(t, resident) for t in family),
        making_bytes=_COPIES * _FLOAT32_BYTES * sum(t.params for t in family),
        count=family[0].num_experts * len(numbers),
    )


def expert_budget(
    sizes: ExpertSizes,
    stages: tuple[MemoryPlan, ...],
    *,
    host_free_bytes: int,
    stored_bytes: int | None,
    ready_bytes: int | None,
) -> Budget:
    """What was asked for, and else as many experts as what is left has room for.

    ``stages`` are planned without experts. On a CPU both kinds share what is left; with GPUs what
    is stored may take half of the host's memory. Raises RefusedError where one expert is too many.
    """
    left = min(
        n * _left_bytes(stage, sizes) for stage, n in zip(stages, _shares(stages), strict=True)
    )
    on_host, room = host_free_bytes // 2, left
    if stages[0].device == "cpu":
        on_host = left // 2 if ready_bytes is None else left - ready_bytes
    if stored_bytes is None:
        stored_bytes = min(on_host, sizes.count * sizes.stored_bytes)
    if stages[0].device == "cpu":
        room -= stored_bytes
    if ready_bytes is None:
        ready_bytes = min(room, sizes.count * sizes.ready_bytes)
    for asked, least, flag in (
        (stored_bytes, sizes.stored_bytes, "--experts-stored"),
        (ready_bytes, sizes.ready_bytes, "--experts-ready"),
    ):
        if asked < least:
            raise RefusedError(
                f"one expert has {least:,} bytes, and there is room for {max(0, asked):,}",
                where=f"{flag}, streamed experts",
                remedy=f"free memory, or give at least {flag} {least} and a shorter context",
                rule="embedded-memory",
            )
    return Budget(host_bytes=stored_bytes, device_bytes=ready_bytes)


def has_room(stages: tuple[MemoryPlan, ...], sizes: ExpertSizes) -> bool:
    """Whether one expert at least can be kept beside what is planned without any."""
    least = sizes.stored_bytes + sizes.ready_bytes
    return all(_left_bytes(stage, sizes) >= least for stage in stages)


def with_experts(
    stages: tuple[MemoryPlan, ...], sizes: ExpertSizes, budget: Budget
) -> tuple[MemoryPlan, ...]:
    """The same plans with what streamed experts take of each device; stages of one share it."""
    return tuple(
        replace(stage, lines=(*stage.lines, *_lines(stage.device, n, sizes, budget)))
        for stage, n in zip(stages, _shares(stages), strict=True)
    )


def expert_uses_text(uses: Mapping[str, int]) -> str:
    """Where streamed experts were when they were needed, as shares of all uses."""
    asked = sum(number for place, number in uses.items() if place != "read ahead")
    shares = [f"{number / max(1, asked):.0%} {place}" for place, number in uses.items()]
    return f"experts: {counted(asked, 'use')}, {', '.join(shares[:-1])}; {shares[-1]}"


def _lines(device: str, share: int, sizes: ExpertSizes, budget: Budget) -> Iterator[Line]:
    source = "core.expert_budget"
    ready = -(-budget.device_bytes // share)
    yield memory_line("experts_ready_bytes", "experts, ready", ready, source)
    if device == "cpu":
        stored = -(-budget.host_bytes // share)
        yield memory_line("experts_stored_bytes", "experts, as stored", stored, source)
    making = sizes.making_bytes
    yield memory_line("experts_making_bytes", "one expert being unpacked", making, source)


def _shares(stages: tuple[MemoryPlan, ...]) -> list[int]:
    """How many stages each one's device holds."""
    devices = [stage.device for stage in stages]
    return [devices.count(device) for device in devices]


def _left_bytes(stage: MemoryPlan, sizes: ExpertSizes) -> int:
    spare = stage.free_bytes // _SPARE
    return stage.free_bytes - stage.total_bytes - spare - sizes.making_bytes
