"""Requests that have not come yet: those of a trace, or the next ones of users."""

from collections import deque
from heapq import heappop, heappush

from k31ctl.core.arrivals import ClosedLoop, Load, OpenLoop, RequestSize
from k31ctl.core.sequence import Sequence


class Pending:
    """Requests that have not come yet, by time."""

    def __init__(self, load: Load) -> None:
        self._sizes: deque[RequestSize] = deque()
        self._think_s = 0.0
        self._heap: list[tuple[float, int, int, RequestSize]] = []
        self._num_known = 0
        match load:
            case OpenLoop(arrivals=arrivals):
                for arrival in arrivals:
                    self._push(arrival.arrival_s, -1, arrival.size)
            case ClosedLoop(sizes=sizes, num_users=num_users, think_s=think_s):
                self._sizes.extend(sizes)
                self._think_s = think_s
                for user in range(min(num_users, len(sizes))):
                    self._push(0.0, user, self._sizes.popleft())

    def next_s(self) -> float | None:
        """When the next one comes."""
        return self._heap[0][0] if self._heap else None

    def come(self) -> Sequence:
        """Return the next one, with its number, which follows the order of arrival."""
        arrival_s, order, user, size = heappop(self._heap)
        return Sequence(order=order, size=size, arrival_s=arrival_s, user=user)

    def served(self, user: int, now_s: float) -> None:
        """Let a user of a closed loop think and send the next request."""
        if user >= 0 and self._sizes:
            self._push(now_s + self._think_s, user, self._sizes.popleft())

    def _push(self, arrival_s: float, user: int, size: RequestSize) -> None:
        heappush(self._heap, (arrival_s, self._num_known, user, size))
        self._num_known += 1
