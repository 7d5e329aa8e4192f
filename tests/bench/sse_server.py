"""An OpenAI-compatible server on loopback that answers as a test wants, well or badly.

A ``Script`` returns what to do for a request, step by step: bytes to send as they are, seconds to
wait, or what ends the connection. Nothing is put between them, so that a script decides about
chunks, pieces and headers.
"""

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"
CLOSE, RESET = "close", "reset"
Step = bytes | float | str


@dataclass
class Asked:
    """One request as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    number: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Script = Callable[[Asked], Iterator[Step]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(document: Any) -> bytes:
    text = document if isinstance(document, str) else json.dumps(document)
    return b"data: " + text.encode() + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "mock",
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
    }


def usage(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    counts = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    return {"id": "c1", "choices": [], "usage": counts | more}


def stream_of(*documents: Any, done: bool = True) -> Iterator[Step]:
    """A well-formed stream of these events, each in a chunk of its own."""
    yield HEAD
    for document in documents:
        yield chunk(event(document))
    yield (chunk(DONE) if done else b"") + END


def answer(asked: Asked) -> Iterator[Step]:
    """As many tokens as were asked for, then usage."""
    tokens = asked.json["max_tokens"]
    yield from stream_of(
        delta(role="assistant", content="tok"),
        *(delta(content=" tok") for _ in range(tokens - 1)),
        delta(finish="length"),
        usage(7, tokens),
    )


def plain(status: int, document: Any, headers: str = "") -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


@dataclass
class BenchServer:
    """A running server; ``routes`` answers other paths than the completions."""

    script: Script
    routes: dict[str, Callable[[Asked], bytes]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    num_connections: int = 0
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def completions(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.path.endswith("/completions")]


def _models(_: Asked) -> bytes:
    return plain(200, {"data": [{"id": "mock", "max_model_len": 1000}]})


def _read(stream: Any, server: BenchServer, connection: int) -> Asked | None:
    line = stream.readline().decode("latin-1")
    if not line:
        return None
    method, path, _ = line.split(" ", 2)
    headers = {}
    while (text := stream.readline().decode("latin-1").strip()) != "":
        name, _, value = text.partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", "0")))
    with server.lock:
        asked = Asked(method, path, headers, body, connection, len(server.completions()))
        server.asked.append(asked)
    return asked


def _steps(server: BenchServer, asked: Asked) -> Iterator[Step]:
    route = server.routes.get(asked.path)
    if route is not None:
        yield route(asked)
    elif asked.path.endswith("/models"):
        yield _models(asked)
    elif asked.path.endswith("/completions"):
        yield from server.script(asked)
    else:
        yield plain(404, {})


def _serve(server: BenchServer, sock: socket.socket, number: int) -> None:
    with sock, suppress(OSError, ValueError):
        stream = sock.makefile("rb")
        while (asked := _read(stream, server, number)) is not None:
            for step in _steps(server, asked):
                if isinstance(step, bytes):
                    sock.sendall(step)
                elif isinstance(step, float):
                    time.sleep(step)
                else:
                    if step == RESET:
                        linger = struct.pack("ii", 1, 0)
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    return


@contextmanager
def running_server(
    script: Script = answer, *, context: ssl.SSLContext | None = None, **more: Any
) -> Iterator[BenchServer]:
    """Serve until the block ends, with TLS where a context is given."""
    server = BenchServer(script, **more)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    scheme = "http" if context is None else "https"
    server.url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if context is not None:
                    sock = context.wrap_socket(sock, server_side=True)
            except ssl.SSLError:
                continue
            except OSError:
                return
            server.num_connections += 1
            arguments = (server, sock, server.num_connections)
            threading.Thread(target=_serve, args=arguments, daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
