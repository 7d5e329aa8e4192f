"""An OpenAI-compatible server on loopback whose steps take known times, as an engine's would.

One loop does all the work, as the embedded engine's scheduler does: a step gives every running
request one token and computes waiting prompts, up to a chunk of tokens. It takes a known time, a
known time for each request and each prompt beyond the first, and one for each token of a prompt. So
it has a speed that a plan can be fitted to.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.bench.sse_server import DONE, END, HEAD, chunk, delta, event, plain, usage

CHUNK_TOKENS = 512
# Users whose answers ended together come back within this time, and stay together.
GATHER_S = 0.02


@dataclass
class Timing:
    """Seconds: of a decode step and each request in it beyond the first; of prompts, likewise."""

    step_s: float
    sequence_s: float
    prefill_s: float
    prompt_s: float
    prompt_token_s: float

    def of(self, *, num_decoding: int, pieces: list[int]) -> float:
        """Seconds of a step with so many requests and pieces of prompts of so many tokens."""
        seconds = 0.0
        if num_decoding:
            seconds += self.step_s + self.sequence_s * (num_decoding - 1)
        if pieces:
            seconds += self.prefill_s + self.prompt_s * (len(pieces) - 1)
        return seconds + self.prompt_token_s * sum(pieces)


@dataclass
class _Request:
    writer: asyncio.StreamWriter
    prompt_tokens: int
    unread: int
    left: int
    output_tokens: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class TimedEngine:
    """The scheduler and its connections."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._waiting: list[_Request] = []
        self._running: list[_Request] = []
        self._work = asyncio.Event()

    async def schedule(self) -> None:
        """Work for ever."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if not self._waiting and not self._running:
                self._work.clear()
                await self._work.wait()
                due = loop.time()
                await asyncio.sleep(GATHER_S)
            given, pieces, room = list(self._running), [], CHUNK_TOKENS
            for request in self._waiting:
                piece = min(room, request.unread)
                pieces += [piece] if piece else []
                request.unread, room = request.unread - piece, room - piece
            due += self._timing.of(num_decoding=len(given), pieces=pieces)
            # Sleeping until a due time keeps the pace, however late this machine wakes us.
            await asyncio.sleep(max(0.0, due - loop.time()))
            begun = [request for request in self._waiting if not request.unread]
            self._waiting = [request for request in self._waiting if request.unread]
            for request in given + begun:
                self._give(request)
            self._running = [r for r in self._running + begun if r.left]

    def _give(self, request: _Request) -> None:
        first = request.left == request.output_tokens
        request.left -= 1
        text = delta(role="assistant", content="tok") if first else delta(content=" tok")
        out = (HEAD if first else b"") + chunk(event(text))
        if not request.left:
            done = usage(request.prompt_tokens, request.output_tokens)
            out += b"".join(chunk(event(e)) for e in (delta(finish="length"), done))
            out += chunk(DONE) + END
            request.ended.set()
        request.writer.write(out)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests one after another."""
        try:
            while line := await reader.readline():
                path, length = line.split(b" ")[1].decode(), 0
                while header := (await reader.readline()).strip():
                    name, _, value = header.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                await self._answer(path, await reader.readexactly(length), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if path.endswith("/models"):
            writer.write(plain(200, {"data": [{"id": "timed"}]}))
        elif not path.endswith("/completions"):
            writer.write(plain(404, {}))
        else:
            asked = json.loads(body)
            words = len(asked["messages"][0]["content"].split())
            tokens = asked["max_tokens"]
            request = _Request(writer, words, words, tokens, tokens)
            self._waiting.append(request)
            self._work.set()
            await request.ended.wait()
        await writer.drain()


@contextmanager
def timed_engine(timing: Timing) -> Iterator[str]:
    """Serve until the block ends; gives the address."""
    loop = asyncio.new_event_loop()
    found: list[str] = []
    ready = threading.Event()

    async def serve() -> None:
        engine = TimedEngine(timing)
        server = await asyncio.start_server(engine.connection, "127.0.0.1", 0)
        found.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        ready.set()
        async with server:
            await engine.schedule()

    def run() -> None:
        task = loop.create_task(serve())
        tasks.append(task)
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        finally:
            others = asyncio.all_tasks(loop)
            for other in others:
                other.cancel()
            if others:
                loop.run_until_complete(asyncio.wait(others))
            loop.close()

    tasks: list[asyncio.Task[None]] = []
    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(tasks[0].cancel)
        thread.join()
