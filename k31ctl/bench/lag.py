"""How late the client itself is: the most that its timestamps may be behind the wire."""

from math import exp, log
from typing import Final

from k31ctl.values import frozen

_PER_E: Final = 20  # buckets of 5 % each
_LEAST_S: Final = 1e-7


@frozen
class Lag:
    """Lag of a client, in seconds; of ``p99_s`` and ``p50_s`` the error is at most 5 %."""

    mean_s: float
    p50_s: float
    p99_s: float
    max_s: float


class LagMeter:
    """Collects lags with their weights in buckets, so that memory does not grow."""

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._sum_s = self._max_s = 0.0
        self._weight = 0

    def add(self, lag_s: float, weight: int) -> None:
        """Count a lag that this many timestamps had."""
        bucket = int(log(lag_s if lag_s > _LEAST_S else _LEAST_S) * _PER_E)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + weight
        self._sum_s += lag_s * weight
        self._weight += weight
        self._max_s = max(self._max_s, lag_s)

    def read(self) -> Lag:
        """Return what was collected; zeros of nothing."""
        return Lag(
            mean_s=self._sum_s / self._weight if self._weight else 0.0,
            p50_s=self._percentile(0.5),
            p99_s=self._percentile(0.99),
            max_s=self._max_s,
        )

    def _percentile(self, share: float) -> float:
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= share * self._weight:
                return min(exp(bucket / _PER_E), self._max_s)
        return 0.0
