"""How fast and at what hours bytes may come."""

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from datetime import time as clock_time
from typing import Final

from k31ctl.fetch.trouble import StoppedError
from k31ctl.values import frozen

LARGEST_PIECE: Final = 1024 * 1024
SMALLEST_PIECE: Final = 32 * 1024
_FAST_S: Final = 0.05
_SLOW_S: Final = 0.5
_BURST_S: Final = 0.25


@frozen
class Hours:
    """A daily window in local time; it may pass midnight."""

    begin: clock_time
    end: clock_time

    def wait_s(self, now: datetime) -> float:
        """Seconds until the window is open; 0 inside it."""
        at = now.time()
        inside = (
            self.begin <= at < self.end
            if self.begin <= self.end
            else at >= self.begin or at < self.end
        )
        if inside or self.begin == self.end:
            return 0.0
        opens = datetime.combine(now.date(), self.begin)
        if opens <= now:
            opens += timedelta(days=1)
        return (opens - now).total_seconds()


def parse_hours(text: str) -> Hours:
    """Read ``22:00-06:00``; raises ValueError with what to write."""
    begin, _, end = text.partition("-")
    try:
        return Hours(
            begin=clock_time.fromisoformat(begin.strip()), end=clock_time.fromisoformat(end.strip())
        )
    except ValueError:
        raise ValueError(f"{text[:60]!r} is not a span of hours; write 22:00-06:00") from None


class Throttle:
    """Holds back the threads that share it, to a rate and to a daily window."""

    def __init__(
        self,
        *,
        limit_bytes_per_s: float | None,
        hours: Hours | None,
        stopped: threading.Event,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._limit, self._hours, self._stopped, self._now = limit_bytes_per_s, hours, stopped, now
        self._lock = threading.Lock()
        self._free_at = 0.0

    @property
    def is_limited(self) -> bool:
        """Whether bytes are held back to a rate."""
        return self._limit is not None

    def closed_s(self) -> float:
        """Seconds until bytes may come at all."""
        return self._hours.wait_s(self._now()) if self._hours else 0.0

    def piece_bytes(self, largest: int) -> int:
        """Return how many bytes to take at once, so that the rate is even."""
        return largest if self._limit is None else max(4096, min(largest, int(self._limit / 8)))

    def spend(self, num_bytes: int) -> None:
        """Wait until these bytes fit the rate; raises StoppedError where the work is stopped."""
        if self._limit is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - _BURST_S) + num_bytes / self._limit
            wait_s = self._free_at - now
        if wait_s > 0 and self._stopped.wait(wait_s):
            raise StoppedError


def next_piece_bytes(piece_bytes: int, *, seconds: float) -> int:
    """Return how much to read at once: large where bytes are quick, small where they are slow."""
    if seconds < _FAST_S:
        return min(2 * piece_bytes, LARGEST_PIECE)
    return max(piece_bytes // 2, SMALLEST_PIECE) if seconds > _SLOW_S else piece_bytes
