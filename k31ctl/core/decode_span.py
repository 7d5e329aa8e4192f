"""How long decode steps in a row take, with the cost asked at a few of them."""

from typing import Final

from k31ctl.core.batching import StepCost
from k31ctl.values import frozen

LINEAR_WITHIN: Final = 1e-5
"""Steps are summed as a straight line where the middle one is within this fraction of it."""


@frozen
class Span:
    """Decode steps of one batch in a row."""

    steps: int
    seconds: float
    first_s: float
    longest_rest_s: float


def decode_span(
    cost: StepCost,
    *,
    num_decoding: int,
    context_tokens: float,
    gain_tokens: float,
    steps: int,
    until_s: float | None,
) -> Span:
    """Time of up to ``steps`` steps; fewer where time is no straight line of context for so long.

    No step begins after ``until_s`` seconds. Time per step is taken at the first, the middle and
    the last step. Where these are not on one line, the first half is tried.
    """

    def at(step: int) -> float:
        return cost.step_s(
            num_decoding=num_decoding,
            context_tokens=context_tokens + gain_tokens * step,
            prefill_tokens=0,
            prefill_past_tokens=0.0,
        )

    first = at(0)
    if until_s is not None and first >= until_s:
        steps = 1
    while steps > 1:
        last = at(steps - 1)
        middle = (steps - 1) // 2
        line = first + (last - first) * middle / (steps - 1)
        if middle == 0 or abs(at(middle) - line) <= LINEAR_WITHIN * line:
            break
        steps = (steps + 1) // 2
    if steps == 1:
        return Span(steps=1, seconds=first, first_s=first, longest_rest_s=0.0)
    slope = (last - first) / (steps - 1)
    if until_s is not None:
        steps = _steps_reaching(until_s, first=first, slope=slope, most=steps)
    return Span(
        steps=steps,
        seconds=_sum_s(steps, first, slope),
        first_s=first,
        longest_rest_s=max(first + slope, first + slope * (steps - 1)) if steps > 1 else 0.0,
    )


def _sum_s(steps: int, first: float, slope: float) -> float:
    return steps * first + slope * steps * (steps - 1) / 2


def _steps_reaching(until_s: float, *, first: float, slope: float, most: int) -> int:
    """Fewest steps that together last ``until_s``, or all of them."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if _sum_s(middle, first, slope) >= until_s:
            high = middle
        else:
            low = middle + 1
    return low
