"""A stage as curves: the distribution of each latency, and what happened when."""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from math import ceil, fsum
from typing import Final

from k31ctl.bench.gauges import Sample
from k31ctl.core.served import percentile
from k31ctl.core.steady import Steady, steadiness
from k31ctl.values import frozen

QUANTILES: Final = (*range(100), 99.5, 99.9, 100)
"""Percents that a distribution is given at."""
_MOST_BINS: Final = 120
_LEAST_BIN_S: Final = 0.1
_PARTS: Final = 24  # of the time, of which each holds enough for its value not to jump


@frozen
class Bin:
    """What happened in a part of the time.

    ``output_tokens`` are spread evenly over the time from the first to the last token of each
    answer. ``in_flight`` is the mean, ``ttft_p50_s`` of the answers that began here.
    """

    start_s: float
    sent: int
    completed: int
    failed: int
    output_tokens: float
    in_flight: float
    ttft_p50_s: float | None


@frozen
class StageSeries:
    """A stage as curves; distributions are values at ``QUANTILES``, empty where there are none."""

    name: str
    repeat: int
    ttft_s: tuple[float, ...]
    itl_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    e2e_s: tuple[float, ...]
    bin_s: float
    bins: tuple[Bin, ...]
    samples: tuple[Sample, ...]


def steady_state(series: StageSeries, *, is_closed: bool, full_s: float | None) -> Steady | None:
    """Return whether a stage came to rest: its tokens per second, or its TTFT in an open loop.

    Arrivals set the throughput of an open loop, and what a queue does shows in the TTFT. Of a
    closed loop only the full load counts; None where there is too little of it.
    """
    bins = series.bins
    if is_closed:
        bins = bins[: int((full_s or 0.0) / series.bin_s)]
    parts = [bins[n * len(bins) // _PARTS : (n + 1) * len(bins) // _PARTS] for n in range(_PARTS)]
    values = []
    for part in (part for part in parts if part):
        if is_closed:
            values.append(fsum(each.output_tokens for each in part) / len(part))
            continue
        ttft = sorted(each.ttft_p50_s for each in part if each.ttft_p50_s is not None)
        values += [percentile(ttft, 50)] if ttft else []
    return steadiness(values) if len(bins) >= _PARTS else None


def quantiles(values: Sequence[float]) -> tuple[float, ...]:
    """Return the values at ``QUANTILES``, interpolated between ranks; nothing of nothing."""
    ordered = sorted(values)
    return tuple(percentile(ordered, share) for share in QUANTILES) if ordered else ()


class Timeline:
    """Collects when requests were sent, began, and ended, in seconds from any one moment."""

    def __init__(self) -> None:
        self._sent, self._first, self._last = array("d"), array("d"), array("d")
        self._ended, self._tokens, self._ttft = array("d"), array("d"), array("d")
        self._is_ok = bytearray()

    def add(
        self,
        *,
        sent_s: float,
        first_s: float,
        last_s: float,
        ended_s: float,
        tokens: int,
        ttft_s: float,
        is_ok: bool,
    ) -> None:
        """Add a request that has ended; moments that never came are 0."""
        self._sent.append(sent_s)
        self._first.append(first_s)
        self._last.append(last_s)
        self._ended.append(ended_s)
        self._tokens.append(tokens)
        self._ttft.append(ttft_s)
        self._is_ok.append(is_ok)

    def bins(self, *, start_s: float, end_s: float) -> tuple[float, tuple[Bin, ...]]:
        """Return the width of the bins and what happened in each."""
        length_s = max(end_s - start_s, _LEAST_BIN_S)
        width_s = max(length_s / _MOST_BINS, _LEAST_BIN_S)
        count = max(1, ceil(length_s / width_s - 1e-9))
        sums = _Sums(count, start_s, width_s)
        for n in range(len(self._sent)):
            self._put(n, sums)
        return width_s, sums.bins()

    def _put(self, n: int, sums: "_Sums") -> None:
        sums.sent[sums.place(self._sent[n])] += 1
        ended = sums.place(self._ended[n])
        sums.in_flight.add(self._sent[n], self._ended[n], self._ended[n] - self._sent[n])
        if not self._is_ok[n]:
            sums.failed[ended] += 1
            return
        sums.completed[ended] += 1
        sums.tokens.add(self._first[n], self._last[n], self._tokens[n])
        sums.ttft.setdefault(sums.place(self._first[n]), []).append(self._ttft[n])


class _Evenly:
    """Amounts that are spread evenly over times, in bins; each costs the same, long or short."""

    def __init__(self, count: int, start_s: float, width_s: float) -> None:
        self._count, self._start_s, self._width_s = count, start_s, width_s
        self._ends, self._steps = [0.0] * count, [0.0] * (count + 1)

    def place(self, moment_s: float) -> int:
        return min(max(int((moment_s - self._start_s) / self._width_s), 0), self._count - 1)

    def add(self, from_s: float, to_s: float, amount: float) -> None:
        """Add an amount; what lies outside of all bins is in the first or the last."""
        first, last = self.place(from_s), self.place(to_s)
        if first == last or to_s <= from_s:
            self._ends[last] += amount
            return
        each = amount / (to_s - from_s) * self._width_s
        begun = (self._start_s + (first + 1) * self._width_s - from_s) / self._width_s * each
        self._ends[first] += begun
        self._ends[last] += amount - begun - (last - first - 1) * each
        self._steps[first + 1] += each
        self._steps[last] -= each

    def sums(self) -> list[float]:
        """Return what is in each bin."""
        running = accumulate(self._steps[:-1])
        return [max(whole + ends, 0.0) for whole, ends in zip(running, self._ends, strict=True)]


class _Sums:
    """Bins while they are filled."""

    def __init__(self, count: int, start_s: float, width_s: float) -> None:
        self._width_s = width_s
        self.sent, self.completed, self.failed = ([0] * count for _ in range(3))
        self.tokens = _Evenly(count, start_s, width_s)
        self.in_flight = _Evenly(count, start_s, width_s)
        self.ttft: dict[int, list[float]] = {}
        self.place = self.tokens.place

    def bins(self) -> tuple[Bin, ...]:
        tokens, in_flight = self.tokens.sums(), self.in_flight.sums()
        return tuple(
            Bin(
                start_s=n * self._width_s,
                sent=self.sent[n],
                completed=self.completed[n],
                failed=self.failed[n],
                output_tokens=tokens[n],
                in_flight=in_flight[n] / self._width_s,
                ttft_p50_s=percentile(sorted(self.ttft[n]), 50) if n in self.ttft else None,
            )
            for n in range(len(self.sent))
        )
