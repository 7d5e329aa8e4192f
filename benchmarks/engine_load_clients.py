"""A server under load as its clients see it: polite and rude ones, and what is wrong for them."""

import asyncio
import json
import os
import random
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx
from engine_load_questions import (
    CHAT,
    COMPLETION,
    LOGPROB_TOLERANCE,
    Answer,
    Question,
    difference,
    streamed_answer,
    whole_answer,
    with_stop,
)

JSON: Final = {"Content-Type": "application/json"}
MANNERS: Final = {
    "whole": 32,
    "streamed": 32,
    "left": 16,
    "malformed": 14,
    "no HTTP": 2,
    "half-sent": 3,
    "oversized": 1,
}
MALFORMED: Final = (
    (CHAT, JSON, b"", 400),
    (CHAT, JSON, b'{"messages": [{"role": "user", "conte', 400),
    (CHAT, JSON, b"null", 400),
    (CHAT, JSON, b'\xff\xfe{"messages": []}', 400),
    (CHAT, JSON, b"[" * 100_000, 400),
    (CHAT, JSON, b'{"messages": 3}', 400),
    (CHAT, JSON, b'{"messages": [{"role": "user", "content": "a"}], "n": 7}', 400),
    (CHAT, JSON, b'{"messages": [{"role": "user", "content": "a"}], "temperature": NaN}', 400),
    (CHAT, JSON, b'{"messages": [{"role": "user", "content": "a"}], "model": "b"}', 404),
    (CHAT, {"Content-Type": "text/plain"}, b"{}", 415),
    (COMPLETION, JSON, b'{"prompt": [999999999]}', 400),
    (COMPLETION, JSON, json.dumps({"prompt": "long " * 100_000}).encode(), 400),
)
OVERSIZED: Final = b'{"prompt": "' + b"a" * (48 << 20) + b'"}'
IDLE: Final = ("requests_open", "requests_running", "requests_waiting", "cached_tokens")


class Server(NamedTuple):
    """Where it answers, and its process where that is on this machine."""

    url: str
    pid: int | None

    def resident_bytes(self) -> int | None:
        """Memory that the process holds now."""
        if self.pid is None:
            return None
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def metrics(self) -> dict[str, float]:
        """The gauges that must be 0 in the end, and the number of slots."""
        lines = httpx.get(f"{self.url}/metrics", timeout=60).text.splitlines()
        told = dict(line.removeprefix("k31ctl:").rsplit(" ", 1) for line in lines if line[0] != "#")
        names = {name: f"num_{name}" for name in (*IDLE, "slots")} | {
            "cached_tokens": "kv_cached_tokens"
        }
        return {name: float(told[key]) for name, key in names.items()}


def _head(path: str, num_bytes: int) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {num_bytes}\r\n\r\n".encode()


class Load:
    """All clients of one run, and what went wrong for them."""

    def __init__(self, server: Server, client: httpx.AsyncClient, *, seed: int) -> None:
        self._server, self._client, self._chance = server, client, random.Random(seed)
        self.alone: list[tuple[Question, dict[str, Answer]]] = []
        self.sent: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.largest_difference = 0.0
        self.resident_bytes: list[int] = []

    async def ask_alone(self, asked: list[Question]) -> None:
        """Ask each question by itself, in both ways, and keep the answers."""
        for number, question in enumerate(asked):
            final = question
            if number % 4 == 0:  # looked for in the text alone, so not in one that is reasoning
                answer = await self._whole(question)
                final = with_stop(question, answer) if len(answer.text) > 1 else question
            self.alone.append(
                (
                    final,
                    {"whole": await self._whole(final), "streamed": await self._streamed(final)},
                )
            )

    async def run(self, count: int, *, num_streams: int) -> None:
        """Send so many requests, so many at a time, while the memory is watched."""
        manners = self._chance.choices(tuple(MANNERS), tuple(MANNERS.values()), k=count)
        turns = asyncio.Semaphore(num_streams)

        async def one(number: int, manner: str) -> None:
            async with turns:
                await self._one(number, manner)

        watching = asyncio.ensure_future(self._watched())
        await asyncio.gather(*(one(number, manner) for number, manner in enumerate(manners)))
        watching.cancel()

    async def once_more(self) -> None:
        """Ask each question alone again: nothing is left behind that changes an answer."""
        for number in range(len(self.alone)):
            await self._one(number, "whole")

    async def _watched(self) -> None:
        while (resident := self._server.resident_bytes()) is not None:
            self.resident_bytes.append(resident)
            await asyncio.sleep(0.5)

    async def _one(self, number: int, manner: str) -> None:
        """Send one request; what is raised or told apart from what is right is kept."""
        self.sent[manner] += 1
        rude: dict[str, Callable[[int], Awaitable[str | None]]] = {
            "left": self._left,
            "malformed": self._malformed,
            "no HTTP": self._no_http,
            "half-sent": self._half_sent,
            "oversized": self._oversized,
        }
        try:
            wrong = await (rude[manner](number) if manner in rude else self._kind(number, manner))
        except (httpx.HTTPError, OSError, ValueError, KeyError) as error:
            wrong = repr(error)
        if wrong is not None:
            self.wrong.append(f"{manner} {number}: {wrong}")

    async def _kind(self, number: int, manner: str) -> str | None:
        question, alone = self.alone[number % len(self.alone)]
        found = await (self._whole if manner == "whole" else self._streamed)(question)
        told_apart = difference(found, alone[manner])
        if told_apart is None or told_apart > LOGPROB_TOLERANCE:
            differ = [pair for pair in zip(found, alone[manner], strict=True) if pair[0] != pair[1]]
            return f"{question}: {differ}"
        self.largest_difference = max(self.largest_difference, told_apart)
        return None

    async def _whole(self, question: Question) -> Answer:
        response = await self._client.post(question.path, json=question.body)
        if response.status_code != httpx.codes.OK:
            raise ValueError(f"{response.status_code} {response.text}")
        return whole_answer(response.json())

    @asynccontextmanager
    async def _events(self, question: Question) -> AsyncIterator[AsyncIterator[str]]:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        sent = self._client.stream("POST", question.path, json={**question.body, **options})
        async with sent as response:
            if response.status_code != httpx.codes.OK:
                raise ValueError(f"{response.status_code} {await response.aread()!r}")
            lines = response.aiter_lines()
            yield (line.removeprefix("data: ") async for line in lines if line)

    async def _streamed(self, question: Question) -> Answer:
        async with self._events(question) as events:
            return streamed_answer([event async for event in events])

    async def _left(self, number: int) -> None:
        """Leave a stream after some pieces, or a whole answer before it comes."""
        question, _ = self.alone[number % len(self.alone)]
        pieces_left = self._chance.randrange(6)
        if not pieces_left:
            body = json.dumps(question.body).encode()
            async with self._connection(_head(question.path, len(body)) + body):
                await asyncio.sleep(self._chance.random() * 2)
            return
        async with self._events(question) as events:
            async for _ in events:
                pieces_left -= 1
                if not pieces_left:
                    return

    async def _malformed(self, number: int) -> str | None:
        path, headers, body, status = MALFORMED[number % len(MALFORMED)]
        return await self._refused(path, headers, body, status)

    async def _oversized(self, _: int) -> str | None:
        return await self._refused(COMPLETION, JSON, OVERSIZED, 413)

    async def _refused(
        self, path: str, headers: dict[str, str], body: bytes, status: int
    ) -> str | None:
        response = await self._client.post(path, content=body, headers=headers)
        is_right = response.status_code == status and "message" in response.json()["error"]
        return None if is_right else f"{response.status_code} {response.text}, not {status}"

    @asynccontextmanager
    async def _connection(
        self, sent: bytes
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        address = httpx.URL(self._server.url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            writer.write(sent)
            await writer.drain()
            yield reader, writer
        finally:
            writer.close()

    async def _no_http(self, number: int) -> str | None:
        sent = (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET / HTTP/1.1\r\nHost a\r\n\r\n")
        async with self._connection(sent[number % 2]) as (reader, _):
            told = await reader.read()
        return None if told.startswith(b"HTTP/1.1 400") else repr(told[:80])

    async def _half_sent(self, number: int) -> str | None:
        """A body that never ends: hang up at once, reset the connection, or wait for the answer."""
        begun = _head(CHAT, 999) + b'{"messages": ['
        async with self._connection(begun) as (reader, writer):
            if number % 3 == 0:
                return None
            if number % 3 == 1:
                linger = struct.pack("ii", 1, 0)
                raw: socket.socket = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                return None
            told = await reader.readuntil(b"\r\n")
        return None if told.startswith(b"HTTP/1.1 408") else repr(told)

    async def fill(self) -> bool:
        """Whether all slots can be held at a time, and are free again after that."""
        slots = int(self._server.metrics()["slots"])
        body = {"prompt": "a", "max_tokens": 1500, "ignore_eos": True}

        async def hold() -> None:
            async with self._events(Question(COMPLETION, body)) as events:
                async for _ in events:
                    pass

        holding = [asyncio.ensure_future(hold()) for _ in range(slots)]
        is_full = await self.comes_to({"requests_running": slots, "requests_open": slots})
        for one in holding:
            one.cancel()
        await asyncio.gather(*holding, return_exceptions=True)
        return is_full and await self.comes_to(dict.fromkeys(IDLE, 0))

    async def comes_to(self, expected: Mapping[str, float]) -> bool:
        """Whether the metrics say this within half a minute."""
        for _ in range(300):
            told = await asyncio.to_thread(self._server.metrics)
            if all(told[name] == value for name, value in expected.items()):
                return True
            await asyncio.sleep(0.1)
        return False
