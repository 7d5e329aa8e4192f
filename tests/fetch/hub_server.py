"""A hub on loopback: model info, resolve with a redirect, ranges, and faults that can be set.

It speaks what huggingface_hub and its servers speak (huggingface_hub 2.4, ``HfApi.model_info`` and
``hf_hub_url``): sizes and SHA-256 in the model's information, the commit and the linked tag in the
answer that redirects, the bytes at another address.
"""

import hashlib
import json
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "owner/name"
PIECE = 64 * 1024
Fault = Callable[["Answer"], None]


@dataclass
class Asked:
    """One request as the server saw it."""

    path: str
    headers: dict[str, str]
    num_bytes: int = 0
    at_s: float = field(default_factory=time.monotonic)


@dataclass
class Answer:
    """What the server is about to send; a fault changes it."""

    path: str
    number: int
    start: int
    end: int
    size: int
    status: int
    headers: dict[str, str]
    content: bytes
    file: bytes
    cut_after: int | None = None
    stall_after: int | None = None
    stall_s: float = 0.0
    rate: float | None = None
    piece: int = PIECE
    protocol: str = "HTTP/1.1"
    is_chunked: bool = False


@dataclass
class HubServer:
    """The state of a running hub; ``fault`` sees every answer with data before it is sent."""

    files: dict[str, bytes]
    repo: str = REPO
    gated: Any = False
    small: frozenset[str] = frozenset({"config.json", "LICENSE"})
    token: str | None = None
    commit: str = COMMIT
    redirect_host: str | None = "localhost"
    location: Callable[[str, str], str] = lambda _name, usual: usual
    fault: Fault = lambda _: None
    api_fault: Callable[[int], tuple[int, dict[str, str], bytes] | None] = lambda _: None
    shown: dict[str, bytes] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    num_at_once: int = 0
    most_at_once: int = 0
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def sha256(self, path: str) -> str:
        return hashlib.sha256(self.files[path]).hexdigest()

    def num_bytes(self) -> int:
        return sum(request.num_bytes for request in self.asked)

    def forget(self) -> None:
        with self.lock:
            self.asked.clear()
            self.counts.clear()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count how many answers with bytes are under way."""
        with self.lock:
            self.num_at_once += 1
            self.most_at_once = max(self.most_at_once, self.num_at_once)
        try:
            yield
        finally:
            with self.lock:
                self.num_at_once -= 1

    def count(self, what: str) -> int:
        with self.lock:
            self.counts[what] += 1
            return self.counts[what]

    def info(self) -> dict[str, Any]:
        siblings = []
        for path, content in self.files.items():
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            entry: dict[str, Any] = {"rfilename": path, "size": len(content), "blobId": blob}
            if path not in self.small:
                entry["lfs"] = {
                    "sha256": self.sha256(path),
                    "size": len(content),
                    "pointerSize": 135,
                }
            siblings.append(entry)
        return {
            "_id": "1",
            "id": self.repo,
            "modelId": self.repo,
            "sha": self.commit,
            "private": False,
            "gated": self.gated,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "cardData": {"license": "other", "license_name": "Example Licence"},
            "siblings": siblings,
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        with suppress(OSError):
            self._answer()

    def _answer(self) -> None:
        hub, parts = self.hub, urlsplit(self.path)
        request = Asked(path=self.path, headers=dict(self.headers.items()))
        with hub.lock:
            hub.asked.append(request)
        path = unquote(parts.path)
        if path.startswith("/api/models/"):
            self._info(path)
        elif path.startswith("/cdn/"):
            self._bytes(path.removeprefix("/cdn/"), request, linked=False)
        else:
            prefix = f"/{hub.repo}/resolve/{hub.commit}/"
            if not path.startswith(prefix):
                self._plain(404, {"X-Error-Code": "EntryNotFound"}, b"")
            elif self._is_denied():
                self._plain(401, {}, b"")
            elif hub.redirect_host and path.removeprefix(prefix) not in hub.small:
                self._redirect(path.removeprefix(prefix))
            else:
                self._bytes(path.removeprefix(prefix), request, linked=True)

    def _is_denied(self) -> bool:
        return bool(self.hub.token) and (
            self.headers.get("Authorization") != f"Bearer {self.hub.token}"
        )

    def _info(self, path: str) -> None:
        hub = self.hub
        faulty = hub.api_fault(hub.count("api"))
        if faulty is not None:
            self._plain(*faulty)
        elif self._is_denied() or not path.startswith(f"/api/models/{hub.repo}"):
            self._plain(401, {"X-Error-Code": "RepoNotFound"}, b'{"error": "not found"}')
        elif path.endswith("/nowhere"):
            self._plain(404, {"X-Error-Code": "RevisionNotFound"}, b'{"error": "no revision"}')
        else:
            assert parse_qs(urlsplit(self.path).query)["blobs"]
            body = json.dumps(hub.info()).encode()
            self._plain(200, {"Content-Type": "application/json"}, body)

    def _tags(self, name: str) -> dict[str, str]:
        content = self.hub.shown.get(name, self.hub.files[name])
        if name in self.hub.small:
            tag = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            return {"ETag": f'"{tag}"', "X-Repo-Commit": self.hub.commit}
        tag = hashlib.sha256(content).hexdigest()
        return {
            "X-Repo-Commit": self.hub.commit,
            "X-Linked-Size": str(len(content)),
            "X-Linked-Etag": f'"{tag}"',
        }

    def _redirect(self, name: str) -> None:
        port = self.connection.getsockname()[1]
        usual = f"http://{self.hub.redirect_host}:{port}/cdn/{quote(name)}?signature=secret"
        target = self.hub.location(name, usual)
        self._plain(302, self._tags(name) | {"Location": target}, b"")

    def _bytes(self, name: str, request: Asked, *, linked: bool) -> None:
        hub = self.hub
        content = hub.shown.get(name, hub.files[name])
        start, end, status = 0, len(content), 200
        headers = self._tags(name) if linked else {"ETag": '"opaque"'}
        span = self.headers.get("Range")
        if span:
            first, _, last = span.removeprefix("bytes=").partition("-")
            start, end, status = int(first), min(int(last) + 1, len(content)), 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        answer = Answer(
            path=name,
            number=hub.count(name),
            start=start,
            end=end,
            size=len(content),
            status=status,
            headers=headers,
            content=content[start:end],
            file=content,
        )
        answer.headers.setdefault("Content-Length", str(len(answer.content)))
        hub.fault(answer)
        with hub.answering():
            self._send(answer, request)

    def _send(self, answer: Answer, request: Asked) -> None:
        self.protocol_version = answer.protocol
        if answer.is_chunked:
            answer.headers.pop("Content-Length")
            answer.headers["Transfer-Encoding"] = "chunked"
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for offset in range(0, len(answer.content), answer.piece):
            piece = answer.content[offset : offset + answer.piece]
            if answer.cut_after is not None and offset >= answer.cut_after:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            if answer.stall_after is not None and offset >= answer.stall_after:
                time.sleep(answer.stall_s)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if answer.is_chunked else piece)
            request.num_bytes += len(piece)
            if answer.rate:
                time.sleep(len(piece) / answer.rate)
        if answer.is_chunked:
            self.wfile.write(b"0\r\n\r\n")
        elif int(answer.headers.get("Content-Length", -1)) != len(answer.content):
            self.close_connection = True

    def _plain(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        return


@contextmanager
def running_hub(hub: HubServer, *, context: ssl.SSLContext | None = None) -> Iterator[HubServer]:
    """Serve until the block ends, with TLS where a context is given."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = _Server(("127.0.0.1", 0), handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if context is None else "https"
    hub.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def status_once(status: int, headers: dict[str, str], *, times: int = 1) -> Fault:
    """A fault: the first answers of every file have this status and no data."""

    def fault(answer: Answer) -> None:
        if answer.number <= times:
            answer.status, answer.content = status, b""
            answer.headers = headers | {"Content-Length": "0"}

    return fault
