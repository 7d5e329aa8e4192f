"""Continuous batching, simulated step by step: what each request of a load gets.

Decode steps in a row whose batch nothing changes are taken at once; see docs/simulation.md for what
is modelled and what is not.
"""

from collections import deque
from math import ceil

from k31ctl.core.arrivals import Load
from k31ctl.core.batching import Batching, KvBudget, Policy, StepCost
from k31ctl.core.decode_batch import DecodeBatch
from k31ctl.core.decode_span import Span, decode_span
from k31ctl.core.pending import Pending
from k31ctl.core.sequence import Gaps, Sequence
from k31ctl.core.served import Clock, RequestRecord, Summary, summarised
from k31ctl.errors import RefusedError
from k31ctl.values import frozen

__all__ = ["Batching", "KvBudget", "Policy", "Simulation", "StepCost", "simulate"]

_Piece = tuple[Sequence, int]


@frozen
class Simulation:
    """Every request served, in the order in which they finished, and the numbers of the run."""

    records: tuple[RequestRecord, ...]
    summary: Summary


def simulate(
    load: Load, *, batching: Batching, kv: KvBudget, cost: StepCost, step_by_step: bool = False
) -> Simulation:
    """Serve a load to its end.

    ``step_by_step`` asks the cost of every step, to hold the fast way against. Requests that the
    cache could never hold are refused on arrival and counted; raises RefusedError where all are.
    """
    service = _Service(load, batching, kv, cost, step_by_step=step_by_step)
    service.run()
    if not service.records:
        raise RefusedError(
            "no request fits the cache, even alone",
            where=f"{service.refused} requests, {kv.total_units} units of cache",
            remedy="shorten the requests or give the cache more memory",
            rule="simulation-cache",
        )
    return Simulation(
        records=tuple(service.records), summary=summarised(service.records, service.clock())
    )


class _Service:
    """The state of a run."""

    def __init__(
        self, load: Load, batching: Batching, kv: KvBudget, cost: StepCost, *, step_by_step: bool
    ) -> None:
        self.records: list[RequestRecord] = []
        self.refused = 0
        self._batching, self._kv, self._cost = batching, kv, cost
        self._step_by_step = step_by_step
        self._pending = Pending(load)
        self._now_s = self._start_s = self._pending.next_s() or 0.0
        self._waiting: deque[Sequence] = deque()
        self._prefilling: dict[int, Sequence] = {}
        self._batch = DecodeBatch(tokens_per_step=batching.tokens_per_step)
        self._admitted_units = 0
        self._gaps = Gaps()
        self._fresh: dict[int, Sequence] = {}
        self._last_decode_s = 0.0
        self._running_s = self._waiting_s = self._busy_s = self._prefill_s = 0.0
        self._steps = self._preemptions = self._kv_peak = 0

    def clock(self) -> Clock:
        """What was counted."""
        return Clock(
            duration_s=self._now_s - self._start_s,
            running_s=self._running_s,
            waiting_s=self._waiting_s,
            busy_s=self._busy_s,
            prefill_s=self._prefill_s,
            steps=self._steps,
            preemptions=self._preemptions,
            refused=self.refused,
            kv_peak_units=self._kv_peak,
            kv_total_units=self._kv.total_units,
        )

    def run(self) -> None:
        """Serve everything."""
        while True:
            self._take_arrivals()
            if self._waiting or self._prefilling or self._batch.members:
                self._step()
                continue
            next_s = self._pending.next_s()
            if next_s is None:
                return
            self._now_s = next_s

    def _take_arrivals(self) -> None:
        while (next_s := self._pending.next_s()) is not None and next_s <= self._now_s:
            sequence = self._pending.come()
            if self._kv.units(sequence.total_tokens) > self._kv.total_units:
                self.refused += 1
                self._pending.served(sequence.user, self._now_s)
                continue
            self._waiting_s += self._now_s - sequence.arrival_s
            self._waiting.append(sequence)

    def _step(self) -> None:
        mixed = self._batching.policy is Policy.MIXED
        preempted = mixed and self._make_room()
        pieces = self._pieces(admitting=not preempted)
        if pieces:
            self._prefill(pieces, decoding=mixed)
            return
        self._make_room()
        if self._batch.members:
            self._decode()

    def _pieces(self, *, admitting: bool) -> list[_Piece]:
        """Return the chunk of the next step: prompts under way first, then those that wait."""
        budget = self._batching.prefill_budget(len(self._batch.members))
        pieces: list[_Piece] = []
        for sequence in self._prefilling.values():
            if not budget:
                return pieces
            budget -= _take(pieces, sequence, budget)
        while admitting and budget and self._waiting and self._admissible(self._waiting[0]):
            sequence = self._waiting.popleft()
            sequence.admitted_units = self._units_to_admit(sequence)
            sequence.prefilled = min(sequence.size.cached_tokens, sequence.prefill_target - 1)
            self._admitted_units += sequence.admitted_units
            self._prefilling[sequence.order] = sequence
            budget -= _take(pieces, sequence, budget)
        return pieces

    def _units_to_admit(self, sequence: Sequence) -> int:
        """Units of all tokens so far, the next ones and the reserved part of those to come."""
        to_come = sequence.size.output_tokens - sequence.generated
        next_ones = 1 + ceil(self._batching.tokens_per_step)
        reserved = ceil(self._batching.reserved_output_fraction * to_come)
        tokens = sequence.prefill_target + max(next_ones, reserved)
        return self._kv.units(min(sequence.total_tokens, tokens))

    def _admissible(self, sequence: Sequence) -> bool:
        if len(self._batch.members) + len(self._prefilling) >= self._batching.max_running:
            return False
        room = self._kv.total_units - self._admitted_units - self._units_to_admit(sequence)
        if self._batch.units_at_end_at_most(self._kv) <= room:
            return True
        fraction = self._batching.reserved_output_fraction
        return self._batch.units(self._kv, ahead=1, output_fraction=fraction) <= room

    def _prefill(self, pieces: list[_Piece], *, decoding: bool) -> None:
        """One step with a chunk; its attention is that of one prompt with as much work.

        Symbols: n tokens of a piece after p others; N tokens of the chunk after P.
        Formula: N (P + N / 2) = sum of n (p + n / 2), with P at least 0
        """
        N = sum(n for _, n in pieces)
        work = sum(n * (sequence.prefilled + n / 2) for sequence, n in pieces)
        num_decoding = len(self._batch.members) if decoding else 0
        seconds = self._cost.step_s(
            num_decoding=num_decoding,
            context_tokens=self._batch.mean_tokens() if decoding else 0.0,
            prefill_tokens=N,
            prefill_past_tokens=max(0.0, work / N - N / 2),
        )
        self._see_peak(ahead=1 if decoding else 0)
        self._pass(seconds, steps=1)
        self._prefill_s += seconds
        if num_decoding:
            self._decoded(Span(steps=1, seconds=seconds, first_s=seconds, longest_rest_s=0.0))
        for sequence, n in pieces:
            sequence.prefilled += n
            if sequence.prefilled == sequence.prefill_target:
                self._start_decoding(sequence)

    def _start_decoding(self, sequence: Sequence) -> None:
        """Give a sequence whose prompt is computed its next token, which may be its last."""
        del self._prefilling[sequence.order]
        self._admitted_units -= sequence.admitted_units
        sequence.generated += 1
        if sequence.first_token_s < 0:
            sequence.first_token_s = self._now_s
        else:
            gap = self._now_s - sequence.last_token_s
            sequence.max_gap_s = max(sequence.max_gap_s, gap)
        sequence.last_token_s = self._now_s
        if sequence.generated == sequence.size.output_tokens:
            self._finish(sequence)
        else:
            self._batch.join(sequence)
            self._fresh[sequence.order] = sequence

    def _decode(self) -> None:
        """Decode until something changes: an end, a full cache, an arrival that may be admitted."""
        steps, until_s = 1, None
        if not self._step_by_step:
            steps = self._steps_that_fit(self._batch.steps_to_next_end())
            next_s = self._pending.next_s()
            full = len(self._batch.members) + len(self._prefilling) >= self._batching.max_running
            if next_s is not None and not self._waiting and not full:
                until_s = next_s - self._now_s
        span = decode_span(
            self._cost,
            num_decoding=len(self._batch.members),
            context_tokens=self._batch.mean_tokens(),
            gain_tokens=self._batching.tokens_per_step,
            steps=steps,
            until_s=until_s,
        )
        self._see_peak(ahead=span.steps)
        self._pass(span.seconds, steps=span.steps)
        self._decoded(span)

    def _decoded(self, span: Span) -> None:
        """Count the tokens of steps that have just passed; some sequences end."""
        first_end_s = self._now_s - span.seconds + span.first_s
        if len(self._batch.members) > len(self._fresh):
            self._gaps.add(first_end_s - self._last_decode_s)
        for sequence in self._fresh.values():
            gap = first_end_s - sequence.last_token_s
            sequence.max_gap_s = max(sequence.max_gap_s, gap)
            sequence.gaps_seen = self._gaps.seen
        self._fresh.clear()
        if span.steps > 1:
            self._gaps.add(span.longest_rest_s)
        self._last_decode_s = self._now_s
        self._batch.steps += span.steps
        for sequence in self._batch.ended():
            self._see_gaps(sequence)
            self._finish(sequence)

    def _make_room(self) -> bool:
        """Preempt the last to arrive until the next step fits; True where any was."""
        preempted = False
        while not self._fits(1):
            self._preempt()
            preempted = True
        return preempted

    def _preempt(self) -> None:
        """Send the last to arrive back to the head of the queue; it loses all it had computed."""
        order = max((*self._batch.members, *self._prefilling))
        if order in self._prefilling:
            sequence = self._prefilling.pop(order)
            self._admitted_units -= sequence.admitted_units
        else:
            sequence = self._batch.members[order]
            self._batch.leave(sequence)
            if self._fresh.pop(order, None) is None:
                self._see_gaps(sequence)
                sequence.last_token_s = self._last_decode_s
        sequence.preemptions += 1
        self._preemptions += 1
        self._waiting.appendleft(sequence)

    def _fits(self, ahead: int) -> bool:
        room = self._kv.total_units - self._admitted_units
        if self._batch.units_at_most(self._kv, ahead=ahead) <= room:
            return True
        return self._batch.units(self._kv, ahead=ahead) <= room

    def _steps_that_fit(self, steps: int) -> int:
        """Most steps, of which one is known to fit, that the cache has room for."""
        if self._fits(steps):
            return steps
        low, high = 1, steps
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(middle) else (low, middle)
        return low

    def _see_peak(self, *, ahead: int) -> None:
        """Note what is held in the step that is this far ahead; prompts hold no reserve here."""
        kv = self._kv
        prompts = sum(kv.units(s.prefill_target + 1) for s in self._prefilling.values())
        if self._batch.units_at_most(kv, ahead=ahead) + prompts > self._kv_peak:
            held = self._batch.units(kv, ahead=ahead) + prompts
            self._kv_peak = max(self._kv_peak, held)

    def _see_gaps(self, sequence: Sequence) -> None:
        gap = self._gaps.longest_since(sequence.gaps_seen)
        sequence.max_gap_s = max(sequence.max_gap_s, gap)

    def _pass(self, seconds: float, *, steps: int) -> None:
        if not seconds > 0:
            raise ValueError(f"a step of {seconds} s")
        running = len(self._batch.members) + len(self._prefilling)
        self._running_s += running * seconds
        self._waiting_s += len(self._waiting) * seconds
        self._busy_s += seconds
        self._now_s += seconds
        self._steps += steps

    def _finish(self, sequence: Sequence) -> None:
        self.records.append(
            RequestRecord(
                arrival_s=sequence.arrival_s,
                first_token_s=sequence.first_token_s,
                finish_s=self._now_s,
                prompt_tokens=sequence.size.prompt_tokens,
                output_tokens=sequence.generated,
                preemptions=sequence.preemptions,
                max_gap_s=sequence.max_gap_s,
            )
        )
        self._pending.served(sequence.user, self._now_s)


def _take(pieces: list[_Piece], sequence: Sequence, budget: int) -> int:
    """Append as much of a prompt as the budget allows and return how much that is."""
    tokens = min(budget, sequence.prefill_target - sequence.prefilled)
    pieces.append((sequence, tokens))
    return tokens
