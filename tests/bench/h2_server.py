"""An OpenAI-compatible server on loopback that speaks nothing but HTTP/2, well or badly.

A ``Script`` says what to do for a stream, step by step: bytes of the body to send, seconds to
wait, or what ends it. One thread for each connection; frames are h2's work.
"""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from hyperframe.frame import GoAwayFrame

RESET, GOODBYE, PING = "reset", "goodbye", "ping"
Step = bytes | float | str
Script = Callable[[Any, int], Iterator[Step]]


@dataclass
class H2Server:
    """A running server, and what it was asked for."""

    script: Script
    url: str = ""
    num_connections: int = 0
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def serve(self, sock: socket.socket) -> None:
        link = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        link.initiate_connection()
        sock.sendall(link.data_to_send())
        asked: dict[int, tuple[dict[str, str], bytearray]] = {}
        while piece := sock.recv(65_536):
            for event in link.receive_data(piece):
                if isinstance(event, RequestReceived):
                    named: list[Any] = event.headers
                    asked[event.stream_id] = (dict(named), bytearray())
                elif isinstance(event, DataReceived):
                    asked[event.stream_id][1].extend(event.data)
                    link.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, StreamEnded):
                    self._answer(link, sock, event.stream_id, *asked.pop(event.stream_id))
            sock.sendall(link.data_to_send())

    def _answer(
        self,
        link: H2Connection,
        sock: socket.socket,
        stream: int,
        headers: dict[str, str],
        body: bytearray,
    ) -> None:
        def head(status: str, kind: str) -> None:
            link.send_headers(stream, [(":status", status), ("content-type", kind)])

        if not headers[":path"].endswith("/completions"):
            models = headers[":path"].endswith("/models")
            head("200" if models else "404", "application/json")
            found = {"data": [{"id": "mock"}]} if models else {}
            link.send_data(stream, json.dumps(found).encode(), end_stream=True)
            return
        self.headers.append(headers)
        self.bodies.append(json.loads(body))
        head("200", "text/event-stream")
        for step in self.script(self.bodies[-1], len(self.bodies) - 1):
            match step:
                case bytes():
                    link.send_data(stream, step)
                case float():
                    time.sleep(step)
                case "ping":
                    link.ping(b"are here")
                case "goodbye":
                    # As gateways do after so many requests: this one is still answered.
                    sock.sendall(GoAwayFrame(0, last_stream_id=stream).serialize())
                case _:
                    link.reset_stream(stream, error_code=2)
                    return
            sock.sendall(link.data_to_send())
        link.end_stream(stream)


@contextmanager
def h2_server(script: Script, *, tls: ssl.SSLContext | None = None) -> Iterator[H2Server]:
    """Serve until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = H2Server(script)
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}"
    threads: list[threading.Thread] = []
    open_ones: list[socket.socket] = []

    def one(sock: socket.socket) -> None:
        with suppress(OSError):
            if tls is not None:
                sock = tls.wrap_socket(sock, server_side=True)
            open_ones.append(sock)
            server.serve(sock)
        sock.close()

    def accept() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                server.num_connections += 1
                threads.append(threading.Thread(target=one, args=(sock,)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for sock in open_ones:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
