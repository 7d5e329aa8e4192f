"""An OpenAI-compatible server on loopback whose steps take known times, as an engine's would.

One loop does all the work, as an engine's scheduler does: where prompts wait it computes all of
them, each token for a known time, else it gives every running request one token, for a known time
and a known time for each of them. So it has a speed that a plan can be fitted to.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.bench.sse_server import DONE, END, HEAD, chunk, delta, event, plain, usage


@dataclass
class Timing:
    """Seconds: of a decode step, of each request in it, of a prefill, of each prompt token."""

    step_s: float
    sequence_s: float
    prefill_s: float
    prompt_token_s: float


@dataclass
class _Request:
    writer: asyncio.StreamWriter
    prompt_tokens: int
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
        t, loop = self._timing, asyncio.get_running_loop()
        due = loop.time()
        while True:
            if not self._waiting and not self._running:
                self._work.clear()
                await self._work.wait()
                due = loop.time()
            if self._waiting:
                # Users whose answers ended together come back within this time, and stay together.
                due += t.prefill_s
                await asyncio.sleep(max(0.0, due - loop.time()))
                given, self._waiting = self._waiting, []
                due += t.prompt_token_s * sum(r.prompt_tokens for r in given)
                self._running += given
            else:
                given = list(self._running)
                due += t.step_s + t.sequence_s * len(given)
            # Sleeping until a due time keeps the pace, however late this machine wakes us.
            await asyncio.sleep(max(0.0, due - loop.time()))
            for request in given:
                self._give(request)
            self._running = [r for r in self._running if r.left]

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
            request = _Request(writer, words, tokens, tokens)
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
