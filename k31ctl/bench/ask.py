"""One question to an endpoint outside the load: its models, its metrics, its tokenizer."""

import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping

from k31ctl.bench.connection import Connection, State
from k31ctl.bench.endpoint import Endpoint
from k31ctl.bench.http1 import ResponseReader
from k31ctl.bench.trouble import Trouble, TroubleError
from k31ctl.errors import EndpointError
from k31ctl.values import frozen

MOST_ANSWER_BYTES = 32 * 2**20
Address = tuple[int, tuple[str, int]]


@frozen
class Answer:
    """Status, headers by lower-case name, and the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def resolve(endpoint: Endpoint) -> tuple[Address, ...]:
    """Return the addresses of what is connected to; raises EndpointError where there is none."""
    host, port = endpoint.dial
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise EndpointError(
            f"the name {host} has no address: {getattr(error, 'strerror', None) or error}".lower(),
            where=endpoint.url,
            remedy="check the name and the network",
        ) from None
    return tuple((family, (str(place[0]), int(place[1]))) for family, *_, place in found)


def ask(
    endpoint: Endpoint,
    address: Address,
    context: ssl.SSLContext | None,
    *,
    method: str,
    path: str,
    body: bytes = b"",
    timeout_s: float,
    enough: Callable[[bytes], bool] | None = None,
) -> Answer:
    """Put one question on a connection of its own; raises TroubleError where it fails.

    ``enough`` is asked about the body so far, and ends the connection once it says so.
    """
    ends_s = time.monotonic() + timeout_s
    connection = Connection(endpoint, *address, now_s=0.0)
    response, content = ResponseReader(), b""
    try:
        connection.send(endpoint.request(method, path, body))
        for piece in _pieces(connection, context, ends_s):
            if not piece:
                response.close()
            content += response.feed(piece) if piece else b""
            if len(content) > MOST_ANSWER_BYTES:
                raise TroubleError(Trouble.OVERSIZED, "an answer of more than 32 MiB")
            if response.is_done or (enough is not None and enough(content)):
                break
    finally:
        connection.sock.close()
    return Answer(status=response.status, headers=response.headers, body=content)


def _pieces(
    connection: Connection, context: ssl.SSLContext | None, ends_s: float
) -> Iterator[bytes]:
    """Yield what comes, empty at the end; raises TroubleError when time is up."""
    while True:
        left_s = ends_s - time.monotonic()
        poller = select.poll()
        writes = select.POLLOUT if connection.wants_write else 0
        poller.register(connection.sock, select.POLLIN | writes)
        if left_s <= 0 or not poller.poll(left_s * 1000 + 1):
            raise TroubleError(Trouble.TIMEOUT, "no answer in time")
        was_ready = connection.state is State.READY
        connection.advance(context)
        if was_ready and (piece := connection.receive()) is not None:
            yield piece
