"""Where requests go: a URL as host, port and path, the proxy between, the headers of each."""

import ssl
from base64 import b64encode
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from k31ctl.bench.http2 import ALPN, check_http2
from k31ctl.errors import InputError, UsageError
from k31ctl.shown_address import shown_address
from k31ctl.values import frozen

KEY_VARIABLE: Final = "K31CTL_API_KEY"
_PORTS = {"http": 80, "https": 443}
_REMEDY = "write http://HOST:PORT or https://HOST/v1"
_TYPE = "Content-Type: application/json\r\n"


@frozen
class Endpoint:
    """An OpenAI-compatible endpoint; ``base`` is the path up to and with ``/v1``.

    ``dial`` is what is connected to, the proxy where there is one. ``headers`` go with every
    request besides the usual ones.
    """

    url: str
    host: str
    port: int
    is_tls: bool
    base: str
    dial: tuple[str, int]
    is_proxied: bool
    proxy_auth: str
    token: str | None
    headers: tuple[tuple[str, str], ...] = ()
    is_http2: bool = False

    @property
    def authority(self) -> str:
        """Host and port as the ``Host`` header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = _PORTS["https" if self.is_tls else "http"]
        return host if self.port == usual else f"{host}:{self.port}"

    @property
    def root(self) -> str:
        """The path that ``/v1`` is under, where health and metrics are."""
        return self.base.removesuffix("/v1")

    def connect_request(self) -> bytes:
        """What opens a tunnel through a proxy."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        text = f"CONNECT {host}:{self.port} HTTP/1.1\r\nHost: {host}:{self.port}\r\n"
        return (text + self.proxy_auth + "\r\n").encode("latin-1")

    def request(self, method: str, path: str, body: bytes, *, accept: str = "*/*") -> bytes:
        """Return the bytes of a request; ``path`` is absolute."""
        through = self.is_proxied and not self.is_tls
        target = f"http://{self.authority}{path}" if through else path
        head = f"{method} {target} HTTP/1.1\r\nHost: {self.authority}\r\nAccept: {accept}\r\n"
        head += "Accept-Encoding: gzip\r\nUser-Agent: k31ctl\r\n"
        if self.token:
            head += f"Authorization: Bearer {self.token}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        if through:
            head += self.proxy_auth
        if method == "POST":
            head += f"{_TYPE}Content-Length: {len(body)}\r\n"
        return head.encode("latin-1") + b"\r\n" + body


def key_in(variable: str, environment: Mapping[str, str]) -> str | None:
    """Return the key for an endpoint, None where the usual variable holds none.

    Raises InputError where another holds none: somebody named it, and meant a key to be sent.
    """
    key = environment.get(variable) or None
    if key is None and variable != KEY_VARIABLE:
        shown = variable if variable.isidentifier() else "NAME"  # what is no name may be the key
        raise InputError(
            "the variable that is to hold the endpoint's key is empty or not set",
            where=f"--api-key-env {shown}",
            remedy="export it, or leave the option out where no key is needed",
        )
    return key


def parse_endpoint(url: str, *, token: str | None, is_http2: bool = False) -> Endpoint:
    """Read a URL; raises UsageError where it is not one of HTTP.

    A URL without ``/v1`` gets it. Proxies are those of the environment, as for other programs.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        raise UsageError(
            f"{shown_address(url)!r} is not a URL", where="URL", remedy=_REMEDY
        ) from None
    # ``urlsplit`` drops CR and LF without a word.
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in _PORTS or not parts.hostname or not is_plain:
        raise UsageError(f"{shown_address(url)!r} is not an HTTP URL", where="URL", remedy=_REMEDY)
    if any(mark in url for mark in "?#@"):  # also where nothing is behind it
        raise UsageError(
            f"the URL of {shown_address(url)!r} has more than a host and a path",
            where="URL",
            remedy=f"{_REMEDY}, and the key into the variable of --api-key-env",
        )
    if token is not None and not (token.isascii() and token.isprintable()):
        raise UsageError(
            "the key holds characters that no header has", where="K31CTL_API_KEY", remedy="check it"
        )
    base = parts.path.rstrip("/")
    for ending in ("/chat/completions", "/completions", "/messages"):
        base = base.removesuffix(ending)
    if not base.endswith("/v1"):
        base += "/v1"
    if is_http2:
        check_http2()
    proxy = _proxy(parts)
    if is_http2 and proxy and parts.scheme == "http":
        raise UsageError(
            "HTTP/2 without TLS does not pass a proxy",
            where="--http2, http_proxy",
            remedy="unset the variable, or name an https URL",
        )
    return Endpoint(
        url=url,
        host=parts.hostname,
        port=port,
        is_tls=parts.scheme == "https",
        base=base,
        dial=(proxy.hostname or "", proxy.port or 80) if proxy else (parts.hostname, port),
        is_proxied=proxy is not None,
        proxy_auth=_proxy_auth(proxy),
        token=token,
        is_http2=is_http2,
    )


def _proxy(parts: SplitResult) -> SplitResult | None:
    known = getproxies()
    found = known.get(parts.scheme) or known.get("all")
    if not found or proxy_bypass(parts.hostname or ""):
        return None
    try:
        proxy = urlsplit(found if "://" in found else f"http://{found}")
        is_spoken = proxy.scheme == "http" and bool(proxy.hostname) and proxy.port != 0
    except ValueError:  # a port that is none
        is_spoken = False
    if not is_spoken:
        kind, is_named, _ = found.partition("://")
        raise UsageError(
            f"a proxy of the kind {kind} is not spoken"
            if is_named and kind != "http"
            else "the address of the proxy is none",
            where=f"{parts.scheme}_proxy",
            remedy="name an http proxy, or unset the variable",
        )
    return proxy


def _proxy_auth(proxy: SplitResult | None) -> str:
    if proxy is None or not proxy.username:
        return ""
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return f"Proxy-Authorization: Basic {b64encode(pair.encode()).decode()}\r\n"


def tls_context(environment: Mapping[str, str], *, is_http2: bool) -> ssl.SSLContext:
    """TLS that proves the server, with the authorities that the environment names."""
    named = (environment.get(n) for n in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))
    file = next((path for path in named if path), None)
    try:
        context = ssl.create_default_context(cafile=file)
    except OSError as error:
        raise UsageError(
            f"cannot read certificates: {error.strerror or error}",
            where=str(file),
            remedy="name a file of PEM certificates in SSL_CERT_FILE",
        ) from None
    context.set_alpn_protocols([ALPN if is_http2 else "http/1.1"])
    return context
