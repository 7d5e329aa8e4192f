"""The sequences that decode together: their lengths, who ends next, how long steps take."""

from bisect import bisect_right
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, floor
from typing import Final

from k31ctl.core.arrivals import RequestSize
from k31ctl.core.batching import KvBudget, StepCost

_EPSILON: Final = 1e-9
LINEAR_WITHIN: Final = 1e-5
"""Steps are summed as a straight line where the middle one is within this fraction of it."""


@dataclass(slots=True, eq=False)
class Sequence:
    """A request under way."""

    order: int
    size: RequestSize
    arrival_s: float
    user: int
    generated: int = 0
    prefilled: int = 0
    admitted_units: int = 0
    joined_step: int = 0
    end_step: int = 0
    first_token_s: float = -1.0
    last_token_s: float = -1.0
    max_gap_s: float = 0.0
    gaps_seen: int = 0
    preemptions: int = 0

    @property
    def prefill_target(self) -> int:
        """Tokens in the cache when prefill is done; what a preempted one had made included."""
        return self.size.prompt_tokens + self.generated

    @property
    def total_tokens(self) -> int:
        """Length at its end."""
        return self.size.prompt_tokens + self.size.output_tokens


class Gaps:
    """Gaps between the tokens of a batch, and the longest since any of them, in log time.

    Kept is every gap that no later one reaches: they fall in order, so the first after a given
    moment is the longest since then.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._positions: list[int] = []
        self._gaps_s: list[float] = []

    def add(self, gap_s: float) -> None:
        """Append one gap."""
        self.seen += 1
        while self._gaps_s and self._gaps_s[-1] <= gap_s:
            self._gaps_s.pop()
            self._positions.pop()
        self._gaps_s.append(gap_s)
        self._positions.append(self.seen)

    def longest_since(self, seen: int) -> float:
        """Return the longest gap after the first ``seen`` ones, 0 where there is none."""
        at = bisect_right(self._positions, seen)
        return self._gaps_s[at] if at < len(self._gaps_s) else 0.0


class DecodeBatch:
    """Sequences that gain ``tokens_per_step`` tokens with every step.

    With a tokens a step and D steps done since the start, sequence i that joined at step D_i with
    c_i tokens has c_i + a (D - D_i): the sum over all needs only the sum of c_i - a D_i.
    """

    def __init__(self, *, tokens_per_step: float) -> None:
        self.steps = 0
        self.members: dict[int, Sequence] = {}
        self._gain = tokens_per_step
        self._sum_at_zero = 0.0
        self._sum_at_end = 0
        self._ends: list[tuple[int, int]] = []

    def join(self, sequence: Sequence) -> None:
        """Take in a sequence that has made a token and has more to make."""
        left = sequence.size.output_tokens - sequence.generated
        sequence.joined_step = self.steps
        sequence.end_step = self.steps + ceil(left / self._gain - _EPSILON)
        self.members[sequence.order] = sequence
        heappush(self._ends, (sequence.end_step, sequence.order))
        self._sum_at_zero += self._at_zero(sequence)
        self._sum_at_end += sequence.total_tokens

    def leave(self, sequence: Sequence) -> None:
        """Let go of a sequence, with what it has generated written on it."""
        self._sum_at_zero -= self._at_zero(sequence)
        self._sum_at_end -= sequence.total_tokens
        sequence.generated = self._generated(sequence, self.steps)
        del self.members[sequence.order]
        if not self.members:
            self._sum_at_zero = 0.0

    def steps_to_next_end(self) -> int:
        """Steps until the first of the members has made its output."""
        self._forget_departed()
        return self._ends[0][0] - self.steps

    def ended(self) -> list[Sequence]:
        """Let go of the members that have made their output, in the order of their arrival."""
        found: list[Sequence] = []
        self._forget_departed()
        while self._ends and self._ends[0][0] <= self.steps:
            sequence = self.members[heappop(self._ends)[1]]
            self.leave(sequence)
            found.append(sequence)
            self._forget_departed()
        return found

    def sum_tokens(self, ahead: int) -> float:
        """Sum of the members' lengths this many steps from now."""
        return self._sum_at_zero + len(self.members) * self._gain * (self.steps + ahead)

    def units_at_most(self, kv: KvBudget, *, ahead: int) -> float:
        """No fewer units than the members hold this many steps from now, without asking each."""
        return kv.units_at_most(
            num_requests=len(self.members), context_tokens=self.sum_tokens(ahead)
        )

    def units_at_end_at_most(self, kv: KvBudget) -> float:
        """No fewer units than the members would hold, were all at their ends at once."""
        return kv.units_at_most(num_requests=len(self.members), context_tokens=self._sum_at_end)

    def mean_tokens(self) -> float:
        """Mean length that the next step attends to."""
        return self.sum_tokens(0) / len(self.members) if self.members else 0.0

    def units(self, kv: KvBudget, *, ahead: int, output_fraction: float = 0.0) -> int:
        """Units that the members hold this many steps from now.

        With ``output_fraction``, room for this part of what they then have still to make is added.
        """
        if not self.members:
            return 0
        step, held = self.steps + ahead, 0
        page, fraction = kv.page_tokens, output_fraction
        for sequence in self.members.values():
            made = self._generated(sequence, step)
            if fraction:
                made += ceil(fraction * (sequence.size.output_tokens - made))
            held -= -(sequence.size.prompt_tokens + made) // page
        return held * kv.units_per_page + len(self.members) * kv.fixed_units

    def _generated(self, sequence: Sequence, step: int) -> int:
        gained = floor((step - sequence.joined_step) * self._gain + _EPSILON)
        return min(sequence.size.output_tokens, sequence.generated + gained)

    def _at_zero(self, sequence: Sequence) -> float:
        return sequence.prefill_target - self._gain * sequence.joined_step

    def _forget_departed(self) -> None:
        while self._ends:
            end, order = self._ends[0]
            member = self.members.get(order)
            if member is not None and member.end_step == end:
                return
            heappop(self._ends)


@dataclass(frozen=True, slots=True, kw_only=True)
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
