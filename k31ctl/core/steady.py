"""Whether a figure over time has come to rest: where its start ends, if it drifts after."""

from collections.abc import Sequence
from math import fsum, sqrt
from statistics import median

from k31ctl.core.student import student_tail
from k31ctl.values import frozen

FEWEST = 8
"""Values that anything can be said from."""
LEAST_DRIFT = 0.05
_ALPHA = 0.01
_NORMAL = 1e6  # degrees of freedom at which Student's t is the normal distribution


@frozen
class Steady:
    """What a figure did over time.

    ``settled_after`` is how many of the values belong to its start, ``drift`` how much it changed
    over the rest, in parts of its middle, and ``is_steady`` whether it neither took half of the
    time to settle, from another level, nor drifted beyond chance; both by more than
    ``LEAST_DRIFT``.
    """

    settled_after: int
    drift: float
    p: float
    is_steady: bool


def steadiness(values: Sequence[float]) -> Steady | None:
    """Return what values at even times did; None of too few, or where their middle is 0."""
    if len(values) < FEWEST:
        return None
    start = _settled_after(values)
    rest = values[start:]
    middle = median(rest)
    if middle <= 0:
        return None
    drift = _slope(rest) * (len(rest) - 1) / middle
    p = _trend_p(rest)
    is_drifting = p < _ALPHA and abs(drift) > LEAST_DRIFT
    is_late = start >= len(values) // 2 and _is_other(values[:start], middle)
    return Steady(
        settled_after=start,
        drift=drift,
        p=p,
        is_steady=not is_drifting and not is_late,
    )


def _is_other(start: Sequence[float], middle: float) -> bool:
    return abs(fsum(start) / len(start) - middle) > LEAST_DRIFT * middle


def _settled_after(values: Sequence[float]) -> int:
    """How many values to leave out so that the mean of the rest is known best, half at most.

    Source: White, An effective truncation heuristic for bias reduction in simulation output,
    Simulation 69(6), 1997 (MSER).
    """
    n = len(values)

    def error(start: int) -> float:
        rest = values[start:]
        mean = fsum(rest) / len(rest)
        return fsum((value - mean) ** 2 for value in rest) / len(rest) ** 2

    return min(range(n // 2 + 1), key=error)


def _slope(values: Sequence[float]) -> float:
    """The median of the slopes between any two values (Theil and Sen)."""
    n = len(values)
    return median((values[j] - values[i]) / (j - i) for i in range(n) for j in range(i + 1, n))


def _trend_p(values: Sequence[float]) -> float:
    """Probability of as clear a trend by chance, by the test of Mann and Kendall.

    Source: Kendall, Rank Correlation Methods, 1975; ties are counted as neither up nor down.
    """
    n = len(values)
    score = sum(
        (values[j] > values[i]) - (values[j] < values[i]) for i in range(n) for j in range(i + 1, n)
    )
    spread = sqrt(n * (n - 1) * (2 * n + 5) / 18)
    z = max(abs(score) - 1, 0) / spread
    return min(1.0, 2 * student_tail(z, degrees=_NORMAL))
