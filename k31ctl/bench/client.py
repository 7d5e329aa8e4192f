"""Many streamed requests at once on one thread, each event with the time that it was received.

One round first receives from every connection that has something and notes the times, and only
then reads what came, for a millisecond at most, so that no timestamp waits for much parsing.
"""

import contextlib
import select
import ssl
from collections import deque
from collections.abc import Callable
from math import floor
from typing import Final

from k31ctl.bench.connection import Connection, State
from k31ctl.bench.endpoint import Endpoint
from k31ctl.bench.exchange import Exchange, Order
from k31ctl.bench.lag import LagMeter
from k31ctl.bench.trouble import Trouble, TroubleError
from k31ctl.values import frozen

_SWEEP_S: Final = 0.05
_LONG_S: Final = 0.003
_ROUND_S: Final = 0.001  # of reading, before what else has come is received
_GRACE_S: Final = 1.0  # for the end of a body after [DONE], before it is taken as ended
_MOST_READY: Final = 1024
_PLAIN: Final = select.EPOLLIN
_IN: Final = select.EPOLLIN | select.EPOLLRDHUP


@frozen
class Limits:
    """How long things may take, in seconds.

    ``total_s`` is for a whole request, ``gap_s`` for the silence after its first event and
    ``connect_s`` for a connection with its handshakes.
    """

    total_s: float
    gap_s: float
    connect_s: float


class Client:
    """Sends requests and returns them when they have ended, one way or the other."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        address: tuple[int, tuple[str, int]],
        context: ssl.SSLContext | None,
        limits: Limits,
        clock: Callable[[], float],
    ) -> None:
        self._endpoint, self._address, self._context = endpoint, address, context
        self._limits, self._clock = limits, clock
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._masks: dict[int, int] = {}
        self._idle: list[Connection] = []
        self._ended: list[Exchange] = []
        self._undelivered: deque[tuple[Connection, bytes, float]] = deque()
        self._polled_s = clock()
        self._next_sweep_s = self._polled_s + _SWEEP_S
        self.lag, self.lateness = LagMeter(), LagMeter()
        self.num_in_flight = 0
        self.num_connections = 0
        self.num_resent = 0
        self._num_ended_events = 0

    @property
    def num_events(self) -> int:
        """Events that carried tokens so far, of all requests."""
        under_way = [c.exchange.num_events for c in self._connections.values() if c.exchange]
        return self._num_ended_events + sum(under_way)

    def open_ahead(self, count: int) -> None:
        """Open connections, and wait until they are ready or have failed."""
        opened = []
        for _ in range(count):
            with contextlib.suppress(TroubleError):
                opened.append(self._open(None))
        while any(c.state is not State.READY and c.sock.fileno() >= 0 for c in opened):
            self.poll(self._clock() + _SWEEP_S)

    def send(self, order: Order, *, due_s: float, counts_from_due: bool) -> Exchange:
        """Begin a request that was due at a time; latencies count from then, or from now."""
        since_s = due_s if counts_from_due else self._clock()
        exchange = Exchange(order, due_s=due_s, since_s=since_s)
        if not self.num_in_flight:  # nothing can have come before
            self._polled_s = self._clock()
        self.num_in_flight += 1
        self._dispatch(exchange)
        return exchange

    def poll(self, until_s: float) -> list[Exchange]:
        """Wait for something to happen, at most until a time; returns requests that ended."""
        ready, has_waited = self._ready(until_s)
        begun_s = self._clock()
        received: list[tuple[Connection, bytes, float]] = []
        for descriptor, mask in ready:
            connection = self._connections.get(descriptor)
            if connection is None:
                continue
            if (mask != _PLAIN or connection.state is not State.READY) and not self._work(
                connection, mask
            ):
                continue
            try:
                piece = connection.receive()
            except TroubleError as trouble:
                self._lose(connection, trouble)
                continue
            if piece is not None:
                received.append((connection, piece, self._clock()))
            if connection.answers_frames:
                self._watch(connection)
        if received:
            held_s = 0.0 if has_waited else begun_s - self._polled_s
            self.lag.add(held_s + received[-1][2] - begun_s, len(received))
        self._polled_s = begun_s
        self._undelivered.extend(received)
        until_s = begun_s + _ROUND_S
        while self._undelivered and self._clock() < until_s:
            self._deliver(*self._undelivered.popleft())
        if begun_s >= self._next_sweep_s:
            self._sweep(begun_s)
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Close every connection; what is in flight ends as abandoned."""
        for connection in list(self._connections.values()):
            if connection.exchange is not None:
                self._fail(connection, Trouble.ABANDONED, "the run was stopped")
            else:
                self._drop(connection)
        self._epoll.close()

    def abandoned(self) -> list[Exchange]:
        """End what is in flight, and return it."""
        for connection in list(self._connections.values()):
            if connection.exchange is not None:
                self._fail(connection, Trouble.ABANDONED, "the run was stopped")
        ended, self._ended = self._ended, []
        return ended

    def _ready(self, until_s: float) -> tuple[list[tuple[int, int]], bool]:
        """Return what is ready, and whether there was nothing before it was waited for."""
        ready = self._epoll.poll(0, _MOST_READY)
        if ready or self._ended or self._undelivered:
            return ready, False
        due_s = min(until_s, self._next_sweep_s)
        wait_s = due_s - self._clock()
        # epoll waits in whole milliseconds, so that the last of them is left to select.
        if wait_s >= _LONG_S:
            ready = self._epoll.poll(floor(wait_s * 1e3 - 1) / 1e3, _MOST_READY)
            if ready:
                return ready, True
            wait_s = due_s - self._clock()
        if wait_s > 0:
            found, _, _ = select.select([self._epoll], [], [], wait_s)
            if not found:
                self.lateness.add(max(self._clock() - due_s, 0.0), 1)
        return self._epoll.poll(0, _MOST_READY), True

    def _dispatch(self, exchange: Exchange) -> None:
        connection = self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = self._open(exchange)
            connection.exchange = exchange
            exchange.sent_s = self._clock()
            connection.send(exchange.order.content)
            self._watch(connection)
        except TroubleError as trouble:
            if connection is None:
                exchange.fail(trouble.kind, trouble.detail, self._clock())
                self._end(exchange)
            else:
                self._lose(connection, trouble)

    def _open(self, exchange: Exchange | None) -> Connection:
        family, address = self._address
        try:
            connection = Connection(self._endpoint, family, address, now_s=self._clock())
        except OSError as error:
            raise TroubleError(Trouble.CONNECT, (error.strerror or "failed").lower()) from None
        connection.exchange = exchange
        descriptor = connection.sock.fileno()
        self.num_connections += 1
        self._connections[descriptor] = connection
        self._masks[descriptor] = _IN | select.EPOLLOUT
        self._epoll.register(descriptor, _IN | select.EPOLLOUT)
        return connection

    def _watch(self, connection: Connection) -> None:
        """Have the kernel tell what the connection now waits for."""
        descriptor = connection.sock.fileno()
        mask = _IN | select.EPOLLOUT if connection.wants_write else _IN
        if self._masks[descriptor] != mask:
            self._masks[descriptor] = mask
            self._epoll.modify(descriptor, mask)

    def _work(self, connection: Connection, mask: int) -> bool:
        """Go on with a connection that is not just receiving; returns whether it can receive."""
        was_ready = connection.state is State.READY
        try:
            if not was_ready or mask & select.EPOLLOUT:
                connection.advance(self._context)
        except TroubleError as trouble:
            self._lose(connection, trouble)
            return False
        self._watch(connection)
        is_ready = connection.state is State.READY
        if is_ready and not was_ready and connection.exchange is None:
            self._idle.append(connection)
        return is_ready and was_ready and bool(mask & ~select.EPOLLOUT)

    def _deliver(self, connection: Connection, piece: bytes, now_s: float) -> None:
        exchange = connection.exchange
        if exchange is None:  # closed, or spoken to, while nothing was asked
            self._drop(connection)
            return
        try:
            if not piece:
                exchange.take_end(now_s)
            elif not exchange.take(piece, now_s):
                return
            exchange.settle(now_s)
        except TroubleError as trouble:
            self._lose(connection, trouble)
            return
        self._release(connection, keep=bool(piece) and exchange.keeps_alive)
        self._end(exchange)

    def _release(self, connection: Connection, *, keep: bool) -> None:
        connection.exchange = None
        connection.num_carried += 1
        if keep:
            self._idle.append(connection)
        else:
            self._drop(connection)

    def _lose(self, connection: Connection, trouble: TroubleError) -> None:
        """Give up a connection; a request that an old one never took is sent once more."""
        exchange = connection.exchange
        old = connection.num_carried > 0
        is_stale = old and trouble.kind in (Trouble.RESET, Trouble.CUT)
        if exchange is not None and is_stale and not exchange.has_begun:
            self._drop(connection)
            self.num_resent += 1
            self._dispatch(exchange)
            return
        self._fail(connection, trouble.kind, trouble.detail)

    def _fail(self, connection: Connection, kind: Trouble, detail: str) -> None:
        exchange = connection.exchange
        self._drop(connection)
        if exchange is not None:
            exchange.fail(kind, detail, self._clock())
            self._end(exchange)

    def _end(self, exchange: Exchange) -> None:
        self.num_in_flight -= 1
        self._num_ended_events += exchange.num_events
        self._ended.append(exchange)

    def _drop(self, connection: Connection) -> None:
        descriptor = connection.sock.fileno()
        connection.exchange = None
        if descriptor >= 0:
            self._connections.pop(descriptor, None)
            self._masks.pop(descriptor, None)
            with contextlib.suppress(OSError):
                self._epoll.unregister(descriptor)
            connection.sock.close()
        if connection in self._idle:
            self._idle.remove(connection)

    def _sweep(self, now_s: float) -> None:
        """End what has taken too long."""
        self._next_sweep_s = now_s + _SWEEP_S
        limits = self._limits
        for connection in list(self._connections.values()):
            exchange = connection.exchange
            if connection.state is not State.READY:
                if now_s - connection.begun_s > limits.connect_s:
                    text = f"no connection within {limits.connect_s:g} s"
                    self._fail(connection, Trouble.CONNECT, text)
            elif exchange is not None:
                if exchange.deltas.is_done and now_s - exchange.heard_s > _GRACE_S:
                    self._deliver(connection, b"", now_s)
                elif now_s - exchange.sent_s > limits.total_s:
                    text = f"not done within {limits.total_s:g} s"
                    self._fail(connection, Trouble.TIMEOUT, text)
                elif exchange.last_s and now_s - exchange.last_s > limits.gap_s:
                    text = f"no token for {limits.gap_s:g} s"
                    self._fail(connection, Trouble.GAP_TIMEOUT, text)
