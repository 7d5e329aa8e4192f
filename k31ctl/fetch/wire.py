"""HTTP connections that read straight into the caller's memory, kept open between requests.

The standard library's client is used because it fills a buffer of ours, with no copy between.
"""

import http.client
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from os import environ
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from k31ctl.errors import InputError
from k31ctl.fetch.header_values import retry_after_s, whole_number
from k31ctl.fetch.trouble import StoppedError, unreachable, untrusted

_CA_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_MOST_DRAINED: Final = 64 * 1024

Place = tuple[str, str, int]


class Response:
    """One answer: its status, its headers, and a body that is read into memory of the caller."""

    def __init__(
        self, wire: "Wire", place: Place, connection: http.client.HTTPConnection, shown: str
    ) -> None:
        self._wire, self._place, self._connection, self._shown = wire, place, connection, shown
        self._reading_since: float | None = None
        self._is_slow = False
        self._socket = connection.sock  # kept: http.client lets go of one that will be closed
        self._answer = connection.getresponse()
        self.status = self._answer.status
        length = whole_number(self._answer.getheader("Content-Length"))
        chunked = self._answer.getheader("Transfer-Encoding", "").lower() == "chunked"
        self.length = None if chunked else length

    def header(self, name: str) -> str | None:
        """Return a header's value, or None where the server sent none."""
        return self._answer.getheader(name)

    @property
    def retry_after_s(self) -> float | None:
        """How long the server asks us to wait, in seconds; None where it does not say."""
        text, date = self.header("Retry-After"), self.header("Date")
        return retry_after_s(text, date=date, now=datetime.now(UTC))

    def readinto(self, view: memoryview) -> int:
        """Fill memory from the body; returns the number of bytes, 0 at its end.

        Raises TransferError where the connection is cut or silent for too long.
        """
        self._reading_since = time.monotonic()
        try:
            count = self._answer.readinto(view)
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            raise self._wire.failure(error, shown=self._shown) from None
        finally:
            self._reading_since = None
        if count == 0 and self._is_slow and len(view):
            raise unreachable("the bytes come too slowly", where=self._shown)
        return count

    def cut_if_slow(self, most_s: float) -> None:
        """Cut the connection where one read has gone on for longer, however it trickles."""
        since = self._reading_since
        if since is not None and time.monotonic() - since > most_s:
            self._is_slow = True
            self.cut()

    def cut(self) -> None:
        """Cut the connection: whoever reads from it gets what has come, then its end."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the connection back where the body was read whole, close it otherwise."""
        with suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            if self._answer.length is not None and self._answer.length <= _MOST_DRAINED:
                self._answer.read()
        whole = self._answer.isclosed() and not self._answer.will_close and not self._is_slow
        self._wire.ended(self)
        self._answer.close()
        self._wire.give_back(self._place, self._connection, usable=whole)


class Wire:
    """Opens connections, honours proxies and certificates, and can cut everything at once."""

    def __init__(self, *, timeout_s: float, stall_s: float) -> None:
        self._timeout_s, self._stall_s = timeout_s, stall_s
        self._lock = threading.Lock()
        self._idle: dict[Place, list[http.client.HTTPConnection]] = {}
        self._busy: set[http.client.HTTPConnection] = set()
        self._answers: set[Response] = set()
        self._context: ssl.SSLContext | None = None
        self.stopped = threading.Event()

    def get(self, url: str, headers: Mapping[str, str], *, shown: str) -> Response:
        """Ask for a URL and return the answer with its body unread.

        ``shown`` names the request in messages: a URL may hold a signature.
        """
        parts = urlsplit(url)
        place = (parts.scheme, parts.hostname or "", parts.port or _default_port(parts.scheme))
        proxy = self._proxy(parts)
        target = url if proxy and parts.scheme == "http" else _path(parts)
        for attempt in (1, 2):
            connection, was_open = self._connection(place, proxy, fresh=attempt > 1)
            try:
                connection.request(
                    "GET", target, headers=dict(headers) | _proxy_login(proxy, place)
                )
                response = Response(self, place, connection, shown)
                with self._lock:
                    self._answers.add(response)
                return response  # noqa: TRY300
            except (OSError, http.client.HTTPException, AttributeError, UnicodeError) as error:
                self.give_back(place, connection, usable=False)
                # A server may close an idle connection at any time; only a fresh one tells.
                if not was_open or isinstance(error, TimeoutError):
                    raise self.failure(error, shown=shown) from None
        raise AssertionError("the second attempt is always on a fresh connection")

    def ended(self, response: Response) -> None:
        """Forget an answer that is read."""
        with self._lock:
            self._answers.discard(response)

    def cut_slow(self) -> None:
        """Cut the connections where a read, small as it is, takes longer than a stall may."""
        with self._lock:
            answers = list(self._answers)
        for answer in answers:
            answer.cut_if_slow(self._stall_s)

    def give_back(
        self, place: Place, connection: http.client.HTTPConnection, *, usable: bool
    ) -> None:
        """Keep a connection for the next request, or close it."""
        with self._lock:
            self._busy.discard(connection)
            if usable and not self.stopped.is_set():
                self._idle.setdefault(place, []).append(connection)
                return
        connection.close()

    def failure(self, error: Exception, *, shown: str) -> Exception:
        """Return what an error of the socket means here."""
        if self.stopped.is_set():
            return StoppedError()
        if isinstance(error, TimeoutError):
            return unreachable(f"no bytes for {self._stall_s:g} s", where=shown)
        if isinstance(error, ssl.SSLCertVerificationError):
            return untrusted(error.verify_message, where=shown)
        if isinstance(error, http.client.IncompleteRead | http.client.RemoteDisconnected):
            return unreachable("the connection was cut", where=shown)
        if isinstance(error, http.client.HTTPException | ValueError):
            return unreachable("what answers does not speak HTTP", where=shown)
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return unreachable(str(text)[:100].lower(), where=shown)

    def stop(self) -> None:
        """Cut every connection; whoever reads from one gets StoppedError."""
        self.stopped.set()
        with self._lock:
            idle = [entry for entries in self._idle.values() for entry in entries]
            self._idle.clear()
            busy, answers = list(self._busy), list(self._answers)
        for answer in answers:
            answer.cut()
        for connection in busy:
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
        for connection in idle:
            connection.close()

    def _connection(
        self, place: Place, proxy: SplitResult | None, *, fresh: bool
    ) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if self.stopped.is_set():
                raise StoppedError
            idle = self._idle.get(place)
            if idle and not fresh:
                connection = idle.pop()
                self._busy.add(connection)
                return connection, True
        connection = self._opened(place, proxy)
        with self._lock:
            self._busy.add(connection)
        return connection, False

    def _opened(self, place: Place, proxy: SplitResult | None) -> http.client.HTTPConnection:
        scheme, host, port = place
        if proxy is not None:
            host, port = proxy.hostname or "", proxy.port or _default_port(proxy.scheme)
        shown = f"{scheme}://{place[1]}:{place[2]}"
        try:
            connection = self._unopened(scheme, host, port)
            if scheme == "https" and proxy is not None:
                connection.set_tunnel(place[1], place[2], headers=_basic_login(proxy))
        except http.client.HTTPException:
            raise unreachable("that is no name of a host", where=shown) from None
        try:
            connection.connect()
        except UnicodeError:  # what the names of hosts are encoded with refuses it
            connection.close()
            raise unreachable("that is no name of a host", where=shown) from None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self.failure(error, shown=shown) from None
        assert connection.sock is not None
        connection.sock.settimeout(self._stall_s)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection

    def _unopened(self, scheme: str, host: str, port: int) -> http.client.HTTPConnection:
        if scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=self._timeout_s, context=self._certificates()
            )
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)

    def _proxy(self, parts: SplitResult) -> SplitResult | None:
        proxies = getproxies()
        named = proxies.get(parts.scheme) or proxies.get("all")
        if not named or proxy_bypass(parts.netloc.rpartition("@")[2]):
            return None
        proxy = urlsplit(named if "://" in named else f"http://{named}")
        try:
            is_usable = proxy.scheme == "http" and bool(proxy.hostname) and proxy.port != 0
        except ValueError:  # a port that is none
            is_usable = False
        if not is_usable:
            raise InputError(
                f"a proxy of kind {proxy.scheme} is not supported"
                if proxy.scheme != "http"
                else "the address of the proxy is none",
                where=f"{parts.scheme}_proxy",
                remedy="name an HTTP proxy, or unset the variable",
            )
        return proxy

    def _certificates(self) -> ssl.SSLContext:
        if self._context is None:
            named = next((environ[name] for name in _CA_VARIABLES if environ.get(name)), None)
            try:
                self._context = ssl.create_default_context(cafile=named)
            except (OSError, ssl.SSLError) as error:
                raise InputError(
                    f"the certificates cannot be read: {error}",
                    where=named or "the system's certificates",
                    remedy="let SSL_CERT_FILE name a file with certificates in PEM form",
                ) from None
        return self._context


def origin(url: str) -> Place:
    """Return scheme, host and port: what must stay the same for a token to be sent along."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _default_port(parts.scheme)


def _path(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _proxy_login(proxy: SplitResult | None, place: Place) -> dict[str, str]:
    return _basic_login(proxy) if proxy is not None and place[0] == "http" else {}


def _basic_login(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(login.encode()).decode()}"}
