"""An endpoint on loopback that keeps the contract, in chat completions and in Messages.

Each step of it is a method, so that a test can break one thing and nothing else.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from k31ctl.errors import InputError
from tests.bench.conformance.pretend_messages import (
    chat_of,
    message_document,
    message_events,
)
from tests.bench.conformance.pretend_model import Said, prompt_tokens, say, tokens_of

CONTEXT = 8000
KEY = 'hunter2"of\\the"test'
EFFORTS = ("low", "high", "max")
_SLOTS = 8


class FaultError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Service:
    """What the endpoint does; a subclass breaks one part."""

    key: str | None = None
    has_tokenizer = True
    has_metrics = True
    pause_s = 0.002
    server: ThreadingHTTPServer

    def __init__(self) -> None:
        self.slots = threading.Semaphore(_SLOTS)
        self.closing = threading.Event()
        self.num_running = 0
        self.lock = threading.Lock()

    # what is understood

    def check_key(self, headers: Mapping[str, str]) -> None:
        if self.key is not None and headers.get("Authorization") != f"Bearer {self.key}":
            raise FaultError(401, f"the key {headers.get('Authorization')} is not known")

    def parse(self, raw: bytes) -> dict[str, Any]:
        try:
            body = json.loads(raw)
        except ValueError:
            raise FaultError(400, "the body is no JSON") from None
        if not isinstance(body, dict):
            raise FaultError(400, "the body is no object")
        return body

    def check(self, chat: Mapping[str, Any]) -> None:
        if chat.get("model") != "pretend":
            raise FaultError(404, f"there is no model {chat.get('model')!r}")
        limit = chat.get("max_tokens", 1)
        if not isinstance(limit, int) or limit < 1:
            raise FaultError(400, f"max_tokens is {limit!r}")
        if not isinstance(chat.get("temperature", 1.0), int | float):
            raise FaultError(400, "temperature is no number")
        self.check_effort(chat.get("reasoning_effort"))

    def check_effort(self, effort: Any) -> None:
        if effort is not None and effort not in EFFORTS:
            raise FaultError(400, f"reasoning_effort is {effort!r}")

    def prompt_tokens(self, chat: Mapping[str, Any]) -> int:
        try:
            return prompt_tokens(chat)
        except InputError as error:
            raise FaultError(400, f"{error.where} {error.what}") from None

    def check_length(self, num_tokens: int) -> None:
        if num_tokens >= CONTEXT:
            raise FaultError(400, f"{num_tokens} tokens are more than the {CONTEXT} of the context")

    def warnings(self, chat: Mapping[str, Any]) -> dict[str, str]:
        return {}

    # what is said

    def say(self, chat: Mapping[str, Any]) -> Said:
        return say(chat)

    def stopped(self, said: Said, chat: Mapping[str, Any]) -> Said:
        for stop in chat.get("stop") or ():
            said.content = said.content.partition(stop)[0]
        return said

    def cut(self, said: Said, chat: Mapping[str, Any]) -> tuple[Said, str, int, int]:
        """The answer within its limit: with its finish, its tokens, and those of reasoning."""
        limit = chat.get("max_tokens", 10**6)
        thought, rest = tokens_of(said.reasoning), tokens_of(said.content)
        made = len(thought) + len(rest) + 10 * len(said.calls) + 3
        if made <= limit:
            finish = "tool_calls" if said.calls else "stop"
            return said, finish, made, len(thought)
        kept = thought[:limit]
        left = rest[: limit - len(kept)]
        return Said("".join(kept), "".join(left)), "length", limit, len(kept)

    def call_id(self, name: str, place: int) -> str:
        return f"{name}:{place}"

    def usage(self, prompt: int, completion: int, reasoning: int) -> dict[str, Any]:
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }

    # how it is written

    def reasoning_fields(self, text: str) -> dict[str, Any]:
        return {"reasoning_content": text}

    def logprobs(self, chat: Mapping[str, Any], content: str) -> dict[str, Any]:
        if not chat.get("logprobs"):
            return {}
        entries = [
            {"token": token, "logprob": -0.5, "top_logprobs": []} for token in tokens_of(content)
        ]
        return {"logprobs": {"content": entries}}

    def calls(self, said: Said) -> list[dict[str, Any]]:
        return [
            {
                "id": self.call_id(name, place),
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(given)},
            }
            for place, (name, given) in enumerate(said.calls)
        ]

    def whole(
        self, chat: Mapping[str, Any], said: Said, finish: str, usage: dict[str, Any]
    ) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": said.content or None}
        message |= self.reasoning_fields(said.reasoning)
        if said.calls:
            message["tool_calls"] = self.calls(said)
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "pretend",
            "choices": [choice | self.logprobs(chat, said.content)],
            "usage": usage,
        }

    def events(
        self, chat: Mapping[str, Any], said: Said, finish: str, usage: dict[str, Any]
    ) -> Iterator[bytes]:
        """The events of a stream, each with its blank line."""
        yield self.chunk({"role": "assistant", "content": ""})
        for token in tokens_of(said.reasoning):
            yield self.chunk(self.reasoning_fields(token))
        for token in tokens_of(said.content):
            yield self.chunk({"content": token})
        for index, call in enumerate(self.calls(said)):
            function = {"name": call["function"]["name"], "arguments": ""}
            yield self.chunk({"tool_calls": [{**call, "index": index, "function": function}]})
            piece = {"index": index, "function": {"arguments": call["function"]["arguments"]}}
            yield self.chunk({"tool_calls": [piece]})
        yield self.chunk({}, finish)
        if (chat.get("stream_options") or {}).get("include_usage"):
            yield self.event({**self.head(), "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    def head(self) -> dict[str, Any]:
        return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "pretend"}

    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self.event({**self.head(), "choices": [choice]})

    def event(self, document: Any) -> bytes:
        return f"data: {json.dumps(document, ensure_ascii=False)}\n\n".encode(
            "utf-8", "backslashreplace"
        )

    def fault(self, status: int, message: str) -> Any:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}

    def fault_headers(self, status: int) -> dict[str, str]:
        return {}

    def message(self, document: dict[str, Any]) -> dict[str, Any]:
        """The same answer in Messages."""
        return document

    # how it is kept

    def enter(self) -> None:
        if not self.slots.acquire(timeout=0.5):
            raise FaultError(503, "all places are taken")
        with self.lock:
            self.num_running += 1

    def leave(self) -> None:
        with self.lock:
            self.num_running -= 1
        self.slots.release()

    def die(self) -> None:
        """Take no further connection."""
        self.server.shutdown()
        self.server.server_close()

    def hung_up(self) -> None:
        """A client has left in the middle of a stream."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    service: Service

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            entry = {"id": "pretend", "max_model_len": CONTEXT}
            self._send(200, {"object": "list", "data": [entry]})
        elif self.path == "/metrics" and self.service.has_metrics:
            text = f'vllm:num_requests_running{{model="pretend"}} {self.service.num_running}\n'
            self._send_bytes(200, text.encode(), "text/plain")
        else:
            self._send(404, {})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        service = self.service
        try:
            if self.path == "/tokenize" and service.has_tokenizer:
                self._send(200, {"count": len(tokens_of(json.loads(raw)["prompt"]))})
                return
            self._check_path()
            service.check_key({name.title(): value for name, value in self.headers.items()})
            self._answer(service.parse(raw))
        except FaultError as fault:
            headers = service.fault_headers(fault.status)
            self._send(fault.status, service.fault(fault.status, str(fault)), headers)

    paths: tuple[str, ...] = ("/v1/chat/completions",)

    def _check_path(self) -> None:
        if self.path not in self.paths:
            raise FaultError(404, f"{self.path} is not offered")

    def _answer(self, body: dict[str, Any]) -> None:
        service, is_messages = self.service, self.path == "/v1/messages"
        chat = chat_of(body) if is_messages else body
        prompt = service.prompt_tokens(chat)
        service.check(chat)
        service.check_length(prompt)
        service.enter()
        try:
            said, finish, made, thought = service.cut(
                service.stopped(service.say(chat), chat), chat
            )
            usage = service.usage(prompt, made, thought)
            if not chat.get("stream"):
                if is_messages:
                    document = service.message(message_document(chat, said, finish, usage))
                else:
                    document = service.whole(chat, said, finish, usage)
                self._send(200, document, service.warnings(chat))
                return
            events = message_events if is_messages else service.events
            self._stream(events(chat, said, finish, usage))
        finally:
            service.leave()

    def _stream(self, events: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for number, event in enumerate(events):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                if number > 200 and not self.service.closing.is_set():
                    time.sleep(self.service.pause_s)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
            self.service.hung_up()

    def _send(self, status: int, document: Any, headers: Mapping[str, str] | None = None) -> None:
        self._send_bytes(status, json.dumps(document).encode(), "application/json", headers)

    def _send_bytes(
        self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that leaves is part of the test


@contextmanager
def serving(service: Service, *, paths: tuple[str, ...] = _Handler.paths) -> Iterator[str]:
    """The address of the service until the block ends."""
    handler = type("Handler", (_Handler,), {"service": service, "paths": paths})
    server = service.server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        service.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
