"""Runs one stage: sends what is due, collects what has ended, and keeps the counts."""

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from k31ctl.bench.client import Client
from k31ctl.bench.events import Progress
from k31ctl.bench.exchange import Exchange
from k31ctl.bench.interrupts import Interrupt
from k31ctl.bench.source import Source
from k31ctl.bench.span import Full, Span
from k31ctl.bench.stage import Sizes, Stage
from k31ctl.bench.tally import Row, Tally
from k31ctl.bench.trouble import Trouble
from k31ctl.core.arrivals import RequestSize

_TELL_S: Final = 0.5
_PAUSE_S: Final = 0.2  # before a user whose request failed tries again
_MOST_PAUSE_S: Final = 60.0
_NS: Final = 1e9
_ROUND_S: Final = 0.001  # of sending or adding up, before what has come is received


class Driver:
    """One stage in progress."""

    def __init__(
        self,
        stage: Stage,
        *,
        client: Client,
        source: Source,
        sizes: Sizes,
        tally: Tally,
        keep: Callable[[Row, Exchange], None],
        most_in_flight: int,
        random: Random,
        interrupt: Interrupt,
        clock: Callable[[], float],
    ) -> None:
        self._stage, self._client, self._source, self._sizes = stage, client, source, sizes
        self._tally, self._keep, self._random = tally, keep, random
        self._interrupt, self._clock, self._cap = interrupt, clock, most_in_flight
        self._ended: deque[Exchange] = deque()
        self._due: list[tuple[float, int, RequestSize, Exchange | None]] = []
        self._num_sent = self._next_arrival = 0
        self.most_in_flight = 0
        self._start_s = 0.0
        self._full: Full | None = None
        self._cpu_s = 0.0
        self._wait_s: float | None = None
        self._is_stopping = False

    def run(self) -> Iterator[Progress]:
        """Run the stage to its end, and tell how far it is."""
        self._cpu_s, self._wait_s = time.process_time(), processor_wait_s()
        self._start_s = self._end_s = self._clock()
        if self._stage.concurrency is not None:
            for user in range(self._stage.concurrency):
                self._plan(self._start_s, user, None)
        tell_s, told = self._start_s + _TELL_S, 0
        while self._has_more():
            self._send_due()
            wake_s = 0.0 if self._ended else self._wake_s(tell_s)
            for exchange in self._client.poll(wake_s):
                self._follow(exchange)
                self._ended.append(exchange)
                self._end_s = self._clock()
            if not self._due_now():  # what is due goes out before anything is added up
                self._add_up()
            self._note_full()
            now_s = self._clock()
            if now_s >= tell_s:
                yield self._progress(now_s, (self._client.num_events - told) / _TELL_S)
                tell_s, told = now_s + _TELL_S, self._client.num_events
        if self._interrupt.is_set or self._end_s == self._start_s:
            self._end_s = self._clock()  # what was waited for in vain took time as well
        for exchange in (*self._ended, *self._client.abandoned()):
            self._keep(self._tally_row(exchange), exchange)
        self._cpu_s = time.process_time() - self._cpu_s
        waited_s = processor_wait_s()
        if waited_s is not None and self._wait_s is not None:
            self._wait_s = waited_s - self._wait_s

    @property
    def span(self) -> Span:
        """When it ran, once it has."""
        return Span(
            start_s=self._start_s,
            end_s=self._end_s,
            cpu_s=self._cpu_s,
            cpu_wait_s=self._wait_s,
            full=self._full,
        )

    def _has_more(self) -> bool:
        if self._interrupt.is_set:
            return False
        return bool(self._ended or self._due or self._client.num_in_flight or self._has_arrivals())

    def _has_arrivals(self) -> bool:
        arrivals = self._stage.arrivals
        return arrivals is not None and self._next_arrival < len(arrivals.arrivals)

    def _wake_s(self, tell_s: float) -> float:
        wake_s = tell_s
        if self._client.num_in_flight < self._cap:
            if self._due:
                wake_s = min(wake_s, self._due[0][0])
            if self._has_arrivals():
                assert self._stage.arrivals is not None
                arrival = self._stage.arrivals.arrivals[self._next_arrival]
                wake_s = min(wake_s, self._start_s + arrival.arrival_s)
        return wake_s

    def _plan(self, due_s: float, user: int, last: Exchange | None) -> None:
        """Let a user send again at a time, unless the stage is about to end."""
        limit, duration_s = self._stage.num_requests, self._stage.duration_s
        is_enough = limit is not None and self._num_sent + len(self._due) >= limit
        is_over = duration_s is not None and due_s - self._start_s >= duration_s
        if is_enough or is_over:
            self._is_stopping = True
        else:
            size = self._sizes.draw(self._random)
            heapq.heappush(self._due, (due_s, user, size, last))

    def _send_due(self) -> None:
        now_s = self._clock()
        until_s = now_s + _ROUND_S
        while self._due_now() and self._has_room() and self._clock() < until_s:
            due_s, user, size, last = heapq.heappop(self._due)
            self._send(due_s, user, size, last)
        arrivals = self._stage.arrivals
        while arrivals is not None and self._has_arrivals() and self._has_room():
            arrival = arrivals.arrivals[self._next_arrival]
            if self._start_s + arrival.arrival_s > now_s:
                break
            user, self._next_arrival = self._next_arrival, self._next_arrival + 1
            self._send(self._start_s + arrival.arrival_s, user, arrival.size, None)
            self._is_stopping = not self._has_arrivals()

    def _due_now(self) -> bool:
        return bool(self._due) and self._due[0][0] <= self._clock() and self._has_room()

    def _add_up(self) -> None:
        """Count requests that have ended, for a millisecond at most."""
        until_s = self._clock() + _ROUND_S
        while self._ended and self._clock() < until_s:
            exchange = self._ended.popleft()
            self._keep(self._tally_row(exchange), exchange)

    def _has_room(self) -> bool:
        return self._client.num_in_flight < self._cap

    def _send(self, due_s: float, user: int, size: RequestSize, last: Exchange | None) -> None:
        order = self._source.order(number=self._num_sent, user=user, size=size, last=last)
        self._num_sent += 1
        is_open = self._stage.concurrency is None
        self._client.send(order, due_s=due_s, counts_from_due=is_open)
        self.most_in_flight = max(self.most_in_flight, self._client.num_in_flight)

    def _follow(self, exchange: Exchange) -> None:
        """Plan what the user of a closed loop does next."""
        if self._stage.concurrency is None:
            return
        pause_s = self._source.think_s(exchange.order.user)
        if exchange.error is not None:
            pause_s = min(exchange.retry_after_s or 0.0, _MOST_PAUSE_S)
            if exchange.error == Trouble.CONNECT:
                pause_s = max(pause_s, _PAUSE_S)
        self._plan(self._clock() + pause_s, exchange.order.user, exchange)

    def _tally_row(self, exchange: Exchange) -> Row:
        return self._tally.add(exchange, start_s=self._start_s)

    def _note_full(self) -> None:
        """Note how much was done when the load begins to end."""
        if self._is_stopping and self._full is None:
            end_s = self._clock() if self._client.num_in_flight else self._end_s
            self._full = Full(
                duration_s=end_s - self._start_s,
                events=self._client.num_events,
            )

    def _progress(self, now_s: float, tok_s: float) -> Progress:
        stage, elapsed_s = self._stage, now_s - self._start_s
        done = self._tally.completed + self._tally.errors
        shares = []
        if stage.duration_s:
            shares.append(elapsed_s / stage.duration_s)
        if stage.num_requests:
            shares.append(done / stage.num_requests)
        return Progress(
            name=stage.name,
            elapsed_s=elapsed_s,
            fraction=min(1.0, max(shares)) if shares else None,
            completed=self._tally.completed,
            errors=self._tally.errors,
            in_flight=self._client.num_in_flight,
            tok_s=tok_s,
        )


def processor_wait_s() -> float | None:
    """How long this thread was ready and had no processor, in seconds; None where not told.

    Source: Linux, Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat, second number.
    """
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / _NS
    except (OSError, ValueError, IndexError):
        return None
