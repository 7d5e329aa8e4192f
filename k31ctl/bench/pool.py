"""Many 32-bit floats on disk, and their exact percentiles in memory that does not grow."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import fsum
from typing import IO, Final

from k31ctl.bench.result import Spread

_PER_PIECE: Final = 1 << 18
_SHIFT: Final = 14
_LOWER: Final = (1 << _SHIFT) - 1
SHARES: Final = (50, 90, 95, 99)


class FloatPool:
    """Numbers of 0 or more in a file of our own; a bit pattern orders as its number does."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._count = 0
        self._sum = self._max = 0.0
        self._counts: Counter[int] = Counter()
        self._num_counted = 0

    def __len__(self) -> int:
        """How many numbers there are."""
        return self._count

    def extend(self, values: "array[float]") -> None:
        """Add numbers."""
        if not values:
            return
        self._file.write(values.tobytes())
        self._count += len(values)
        self._sum += fsum(values)
        most = max(values)
        self._max = max(self._max, most)

    def runs(self, counts: "Iterable[int]") -> Iterator["array[float]"]:
        """Yield the numbers again, so many at a time, in the order in which they were added."""
        self._file.flush()
        self._file.seek(0)
        for count in counts:
            yield array("f", self._file.read(count * 4))
        self._file.seek(0, 2)

    def spread(self) -> Spread | None:
        """Mean, exact percentiles and maximum, None of nothing.

        Percentiles are interpolated linearly between the two nearest ranks. One pass counts the
        numbers by their upper bits, a second those around the ranks by their lower bits, so that
        memory is the same however many there are and however alike.
        """
        if not self._count:
            return None
        ranks = [share / 100 * (self._count - 1) for share in SHARES]
        wanted = sorted({int(r) for r in ranks} | {min(int(r) + 1, self._count - 1) for r in ranks})
        at = self._at(wanted)
        p50, p90, p95, p99 = (
            at[low] + (at[min(low + 1, self._count - 1)] - at[low]) * (rank - low)
            for rank in ranks
            for low in (int(rank),)
        )
        mean = self._sum / self._count
        return Spread(mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, max=self._max)

    def curve(self, percents: Sequence[float]) -> tuple[float, ...]:
        """Return values at percents to a part in 500, from counts alone; nothing of nothing."""
        if not self._count:
            return ()
        counts, seen = self._counted(), 0
        found: list[float] = []
        waiting = [percent / 100 * (self._count - 1) for percent in percents]
        for bucket in sorted(counts):
            seen += counts[bucket]
            while len(found) < len(waiting) and waiting[len(found)] < seen:
                found.append(_value((bucket << _SHIFT) + (1 << (_SHIFT - 1))) if bucket else 0.0)
        return tuple(min(value, self._max) for value in found)

    def _counted(self) -> "Counter[int]":
        """How many numbers have each upper half, counted once for as many as there are."""
        if self._num_counted != self._count:
            self._counts = Counter()
            for bits in self._pieces():
                self._counts.update([b >> _SHIFT for b in bits])
            self._num_counted = self._count
        return self._counts

    def _at(self, wanted: Sequence[int]) -> dict[int, float]:
        """The numbers of these ranks, which are in order."""
        counts = self._counted()
        first_rank: dict[int, int] = {}
        seen = 0
        for bucket in sorted(counts):
            if any(seen <= rank < seen + counts[bucket] for rank in wanted):
                first_rank[bucket] = seen
            seen += counts[bucket]
        lower: dict[int, Counter[int]] = {bucket: Counter() for bucket in first_rank}
        for bits in self._pieces():
            for bucket, counted in lower.items():
                counted.update([b & _LOWER for b in bits if b >> _SHIFT == bucket])
        found: dict[int, float] = {}
        for bucket, start in first_rank.items():
            seen = start
            for rest in sorted(lower[bucket]):
                last = seen + lower[bucket][rest]
                value = _value((bucket << _SHIFT) + rest)
                found |= {rank: value for rank in wanted if seen <= rank < last}
                seen = last
        return found

    def _pieces(self) -> Iterator["array[int]"]:
        self._file.flush()
        self._file.seek(0)
        while piece := self._file.read(_PER_PIECE * 4):
            yield array("I", piece)
        self._file.seek(0, 2)


def _value(bits: int) -> float:
    """The number that has these bits."""
    return array("f", array("I", [bits]).tobytes())[0]
