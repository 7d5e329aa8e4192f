"""The sequences that decode together: their lengths, what they hold, who ends next."""

from heapq import heappop, heappush
from math import ceil, floor
from typing import Final

from k31ctl.core.batching import KvBudget
from k31ctl.core.sequence import Sequence

_EPSILON: Final = 1e-9


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
