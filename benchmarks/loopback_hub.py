"""A hub on loopback for the benchmarks: a folder as one repository, in a process of its own.

It answers what huggingface_hub 2.4 asks of a hub: the model's information with sizes and digests,
and ``resolve`` with ranges. The digests of files above 1 MiB are those of their names, since no
benchmark here reads 1.56 TB of holes: a download from this hub cannot be proven.
"""

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import Process, SimpleQueue, Value
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE_BYTES = 1 << 20


class LoopbackHub:
    """Where the hub is, and how many requests it has answered."""

    def __init__(self, url: str, counter: Any) -> None:
        self.url, self._counter = url, counter

    def num_requests(self) -> int:
        """Requests since the last time this was asked."""
        with self._counter.get_lock():
            count, self._counter.value = self._counter.value, 0
        return int(count)


@contextmanager
def serving(folder: Path, repo: str) -> Iterator[LoopbackHub]:
    """Serve a folder as a repository until the block ends."""
    counter, told = Value("q", 0), SimpleQueue()
    child = Process(target=_serve, args=(folder, repo, counter, told), daemon=True)
    child.start()
    try:
        yield LoopbackHub(f"http://127.0.0.1:{told.get()}", counter)
    finally:
        child.terminate()
        child.join()


def _serve(folder: Path, repo: str, counter: Any, told: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fields = {"folder": folder, "repo": repo, "counter": counter, "info": _info(folder, repo)}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), fields))
    server.daemon_threads = True
    told.put(server.server_address[1])
    server.serve_forever()


def _info(folder: Path, repo: str) -> bytes:
    siblings: list[dict[str, Any]] = []
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        entry: dict[str, Any] = {"rfilename": path.name, "size": size, "blobId": _blob(path)}
        if size >= LARGE_BYTES:
            entry["lfs"] = {"sha256": _digest(path.name), "size": size, "pointerSize": 135}
        siblings.append(entry)
    known = {"id": repo, "modelId": repo, "sha": COMMIT, "private": False, "gated": False}
    return json.dumps(known | {"tags": [], "downloads": 0, "siblings": siblings}).encode()


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _blob(path: Path) -> str:
    size = path.stat().st_size
    content = path.read_bytes() if size < LARGE_BYTES else path.name.encode()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path
    repo: str
    counter: Any
    info: bytes

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        with self.counter.get_lock():
            self.counter.value += 1
        path = unquote(urlsplit(self.path).path)
        if path.startswith(f"/api/models/{self.repo}"):
            self._begin(200, len(self.info), {"Content-Type": "application/json"})
            self.wfile.write(self.info)
            return
        name = path.removeprefix(f"/{self.repo}/resolve/{COMMIT}/")
        file = self.folder / name
        if "/" in name or not file.is_file():
            self._begin(404, 0, {"X-Error-Code": "EntryNotFound"})
            return
        self._file(file)

    def _file(self, file: Path) -> None:
        size = file.stat().st_size
        start, end, status = 0, size, 200
        tag = _digest(file.name) if size >= LARGE_BYTES else _blob(file)
        headers = {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT}
        if asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end, status = int(first), min(int(last) + 1, size), 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self._begin(status, end - start, headers)
        self.wfile.flush()
        with file.open("rb") as stream:
            while start < end:
                sent = os.sendfile(self.connection.fileno(), stream.fileno(), start, end - start)
                if not sent:
                    return
                start += sent

    def _begin(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(length)}).items():
            self.send_header(name, value)
        self.end_headers()
