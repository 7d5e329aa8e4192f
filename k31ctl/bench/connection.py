"""One connection to an endpoint: through a proxy, under TLS, then requests one after another."""

import errno
import os
import socket
import ssl
from enum import Enum
from typing import Final

from k31ctl.bench.endpoint import Endpoint
from k31ctl.bench.exchange import Exchange
from k31ctl.bench.http1 import ResponseReader
from k31ctl.bench.http2 import ALPN, Http2Link
from k31ctl.bench.trouble import Trouble, TroubleError

_PIECE: Final = 64 * 1024
_MOST_UNREAD: Final = 2**25  # a whole window of HTTP/2, and as much again of answers to frames
_TUNNELLED: Final = 200


class State(Enum):
    """How far a connection is."""

    CONNECTING = "connecting"
    TUNNELLING = "tunnelling"
    HANDSHAKING = "handshaking"
    READY = "ready"


class Connection:
    """A socket that never blocks; methods raise TroubleError where it cannot go on."""

    __slots__ = (
        "_endpoint",
        "_link",
        "_out",
        "_tunnel",
        "_wants_read",
        "begun_s",
        "exchange",
        "num_carried",
        "sock",
        "state",
    )

    def __init__(
        self, endpoint: Endpoint, family: int, address: tuple[str, int], *, now_s: float
    ) -> None:
        self._endpoint = endpoint
        self._out = memoryview(b"")
        self._tunnel: ResponseReader | None = None
        self._wants_read = False
        self._link = Http2Link(is_tls=endpoint.is_tls) if endpoint.is_http2 else None
        self.exchange: Exchange | None = None
        self.num_carried = 0
        self.begun_s = now_s
        self.state = State.CONNECTING
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self.sock.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            self.sock.close()
            raise TroubleError(Trouble.CONNECT, os.strerror(code).lower())

    @property
    def answers_frames(self) -> bool:
        """Whether receiving may leave something to send."""
        return self._link is not None

    @property
    def wants_write(self) -> bool:
        """Whether it waits until the socket takes more bytes."""
        waiting = self.state is State.HANDSHAKING and not self._wants_read
        return self.state is State.CONNECTING or waiting or bool(self._out)

    def advance(self, context: ssl.SSLContext | None) -> None:
        """Go on with what comes before the first request, and with bytes still to send."""
        try:
            if self.state is State.CONNECTING:
                self._connected(context)
            if self.state is State.TUNNELLING:
                self._tunnelled(context)
            if self.state is State.HANDSHAKING:
                self._shake_hands()
            if self._out:
                self._push()
        except ssl.SSLError as error:
            raise TroubleError(Trouble.TLS, _tls_words(error)) from None
        except OSError as error:
            raise TroubleError(Trouble.RESET, (error.strerror or "reset").lower()) from None

    def send(self, content: bytes) -> None:
        """Send bytes, now as far as the socket takes them and the rest when it can."""
        self._put(content if self._link is None else self._link.request(content))

    def _put(self, content: bytes) -> None:
        self._out = memoryview(bytes(self._out) + content if self._out else content)
        if self.state is State.READY:
            try:
                self._push()
            except OSError as error:
                raise TroubleError(Trouble.RESET, (error.strerror or "reset").lower()) from None

    def receive(self) -> bytes | None:
        """Return what is here, empty where the other side has ended, None where it is nothing."""
        piece = self._received()
        return piece if self._link is None or piece is None else self._translated(self._link, piece)

    def _translated(self, link: Http2Link, piece: bytes) -> bytes | None:
        """Answer frames with those that they ask for, and return what they say as HTTP/1.1."""
        answer, reply = link.take(piece)
        if reply:
            self._put(reply)
        if len(self._out) > _MOST_UNREAD:
            raise TroubleError(Trouble.OVERSIZED, "it asks for frames that it does not read")
        return answer or (b"" if link.has_ended else None)

    def _received(self) -> bytes | None:
        try:
            if not isinstance(self.sock, ssl.SSLSocket):
                return self.sock.recv(_PIECE)
            found = self.sock.recv(_PIECE)
            while self.sock.pending():
                found += self.sock.recv(_PIECE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLError as error:
            raise TroubleError(Trouble.CUT, error.reason or "TLS ended") from None
        except OSError as error:
            raise TroubleError(Trouble.RESET, (error.strerror or "reset").lower()) from None
        return found

    def _connected(self, context: ssl.SSLContext | None) -> None:
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise TroubleError(Trouble.CONNECT, os.strerror(code).lower())
        try:
            self.sock.getpeername()
        except OSError:
            return  # woken before it is connected
        if self._endpoint.is_proxied and self._endpoint.is_tls:
            self._tunnel = ResponseReader()
            self.sock.send(self._endpoint.connect_request())
            self.state = State.TUNNELLING
        else:
            self._secure(context)

    def _tunnelled(self, context: ssl.SSLContext | None) -> None:
        assert self._tunnel is not None
        try:
            piece = self.sock.recv(_PIECE)
        except BlockingIOError:
            return
        if not piece:
            raise TroubleError(Trouble.PROXY, "the proxy closed the connection")
        self._tunnel.feed(piece)
        if self._tunnel.has_ended_head:
            if self._tunnel.status != _TUNNELLED:
                raise TroubleError(Trouble.PROXY, f"the proxy answered {self._tunnel.status}")
            self._secure(context)

    def _secure(self, context: ssl.SSLContext | None) -> None:
        if context is None:
            self.state = State.READY
            return
        self.sock = context.wrap_socket(
            self.sock, server_hostname=self._endpoint.host, do_handshake_on_connect=False
        )
        self.state = State.HANDSHAKING

    def _shake_hands(self) -> None:
        assert isinstance(self.sock, ssl.SSLSocket)
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            self._wants_read = True
        except ssl.SSLWantWriteError:
            self._wants_read = False
        else:
            self.state = State.READY
            if self._link is not None and self.sock.selected_alpn_protocol() != ALPN:
                raise TroubleError(Trouble.TLS, "the server does not agree to HTTP/2")

    def _push(self) -> None:
        if self.state is not State.READY:
            return
        try:
            while self._out:
                self._out = self._out[self.sock.send(self._out) :]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return


def _tls_words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
