"""A folder given to the machines around: a bounded number of connections, nothing is written."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from k31ctl.errors import InputError
from k31ctl.fetch.peer_answer import IDLE_S, PeerAnswer
from k31ctl.fetch.served_folder import Counts, ServedFolder
from k31ctl.fetch.throttle import Throttle
from k31ctl.values import frozen

_TELL_EVERY_S: Final = 60.0
_LOOK_S: Final = 0.5
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)


@frozen
class ServeRequest:
    """What was asked for; ``token`` is what a client must send, None where nothing."""

    folder: Path
    host: str
    port: int
    most_connections: int
    rate_bytes_per_s: float | None
    token: str | None


@frozen
class Serving:
    """The server answers."""

    url: str
    folder: str
    repo: str
    revision: str
    commit: str
    counts: Counts
    is_open: bool


@frozen
class Served:
    """What was sent since the server began, told while it is used and once it has stopped."""

    num_requests: int
    num_refused: int
    num_connections: int
    bytes_sent: int
    seconds: float
    counts: Counts
    is_final: bool


class PeerServer(ThreadingHTTPServer):
    """The sockets of a served folder and what is counted of them."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    longest_request_s = IDLE_S

    def __init__(self, request: ServeRequest) -> None:
        """Raise InputError where there is nothing to serve, or no such address is free."""
        self.served = ServedFolder(request.folder)
        self.token = request.token
        self.stopped = threading.Event()
        self.throttle = Throttle(
            limit_bytes_per_s=request.rate_bytes_per_s, hours=None, stopped=self.stopped
        )
        self._free = threading.Semaphore(request.most_connections)
        self._count_lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._awaited: dict[socket.socket, float] = {}
        self.num_requests = self.num_refused = self.bytes_sent = 0
        self._begun_s = time.monotonic()
        self.address_family = socket.AF_INET6 if ":" in request.host else socket.AF_INET
        handler = type("Answer", (PeerAnswer,), {"service": self})
        try:
            super().__init__((request.host, request.port), handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"cannot listen: {reason.lower()}",
                where=f"{request.host}:{request.port}",
                remedy="name an address of this machine with --host and a free --port",
            ) from None

    @property
    def url(self) -> str:
        """Where others find it: by this machine's name where it listens on every address."""
        host, port = str(self.server_address[0]), self.server_address[1]
        if host in ("0.0.0.0", "::"):  # noqa: S104  what it may have been told
            host = socket.gethostname()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def num_connections(self) -> int:
        """Connections that are open now."""
        with self._count_lock:
            return len(self._connections)

    def state(self) -> Serving:
        """Return what is served, and where."""
        listing = self.served.listing
        return Serving(
            url=self.url,
            folder=str(self.served.folder),
            repo=listing.snapshot.repo,
            revision=listing.revision,
            commit=listing.snapshot.commit,
            counts=self.served.counts(),
            is_open=self.token is None,
        )

    def totals(self, *, is_final: bool) -> Served:
        """Return what was sent since the server began."""
        return Served(
            num_requests=self.num_requests,
            num_refused=self.num_refused,
            num_connections=self.num_connections,
            bytes_sent=self.bytes_sent,
            seconds=time.monotonic() - self._begun_s,
            counts=self.served.counts(),
            is_final=is_final,
        )

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's name, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def note_request(self) -> None:
        """Count a request."""
        with self._count_lock:
            self.num_requests += 1

    def begin_reading(self, connection: socket.socket) -> None:
        """Note that a request is awaited on a connection."""
        with self._count_lock:
            self._awaited[connection] = time.monotonic()

    def end_reading(self, connection: socket.socket) -> None:
        """Note that the request is there."""
        with self._count_lock:
            self._awaited.pop(connection, None)

    def cut_slow(self) -> None:
        """Cut connections on which a request is awaited for too long, byte by byte or not."""
        now = time.monotonic()
        with self._count_lock:
            slow = [c for c, since in self._awaited.items() if now - since > self.longest_request_s]
        for connection in slow:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def note_bytes(self, num_bytes: int) -> None:
        """Count bytes of files that were sent."""
        with self._count_lock:
            self.bytes_sent += num_bytes

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or tell to come back where all are taken."""
        if not self._free.acquire(blocking=False):
            with self._count_lock:
                self.num_refused += 1
            with suppress(OSError):
                request.settimeout(1.0)
                request.sendall(_BUSY)
            self.shutdown_request(request)
            return
        with self._count_lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer until the connection ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._count_lock:
                self._connections.discard(request)
                self._awaited.pop(request, None)
            self._free.release()

    def handle_error(self, *_: object) -> None:
        """Say nothing of a client that left."""

    def end(self) -> None:
        """Take no more connections and cut those that are open."""
        self.stopped.set()
        self.shutdown()
        self.server_close()
        with self._count_lock:
            connections = list(self._connections)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def serve(server: PeerServer) -> Iterator[Serving | Served]:
    """Serve until the iterator is closed or interrupted; tells what was sent once a minute."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    told_at, told = time.monotonic(), 0
    try:
        yield server.state()
        while thread.is_alive():
            thread.join(_LOOK_S)
            server.cut_slow()
            now = time.monotonic()
            if now - told_at >= _TELL_EVERY_S and server.num_requests != told:
                told, told_at = server.num_requests, now
                yield server.totals(is_final=False)
    finally:
        server.end()
        thread.join()
