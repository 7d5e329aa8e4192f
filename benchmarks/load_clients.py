"""Processor time per streamed event, of ways to build a load client, in turns on one machine.

``python benchmarks/load_clients.py URL [--streams 64] [--tokens 64] [--requests 600] [--rounds 3]``

URL is a server that streams chat completions with known timing. Each way sends the same requests,
reads the same events with our own readers and notes a time for each; they differ in what carries
the bytes: our epoll client, asyncio with our HTTP reader, the same under uvloop, asyncio with
httptools (llhttp) in front of our event reader, and aiohttp. A way whose package is not installed
is left out. Each runs in a process of its own. Printed is the least of the rounds, since other
work on the machine only ever adds.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from k31ctl.bench.client import Client, Limits
from k31ctl.bench.deltas import DeltaReader
from k31ctl.bench.endpoint import parse_endpoint
from k31ctl.bench.exchange import Exchange, Order
from k31ctl.bench.sse import EventSplitter

NEEDS = {
    "epoll": None,
    "asyncio": None,
    "asyncio-uvloop": "uvloop",
    "httptools": "httptools",
    "httptools-uvloop": "uvloop",
    "aiohttp": "aiohttp",
}


def orders(url: str, *, tokens: int, requests: int) -> Iterator[Order]:
    """The same requests for every way."""
    endpoint = parse_endpoint(url, token=None)
    body = json.dumps(
        {
            "model": "mock",
            "messages": [{"role": "user", "content": "word " * 128}],
            "max_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    content = endpoint.request("POST", f"{endpoint.base}/chat/completions", body)
    for number in range(requests):
        yield Order(content=content, prompt_tokens=128, output_tokens=tokens, user=0, number=number)


def with_epoll(url: str, streams: int, waiting: Iterator[Order]) -> int:
    """Our own client."""
    endpoint = parse_endpoint(url, token=None)
    clock = time.perf_counter
    client = Client(
        endpoint,
        address=(2, endpoint.dial),
        context=None,
        limits=Limits(total_s=60, gap_s=60, connect_s=5),
        clock=clock,
    )
    client.open_ahead(streams)
    events = 0
    for order in (next(waiting) for _ in range(streams)):
        client.send(order, due_s=clock(), counts_from_due=False)
    while client.num_in_flight:
        for exchange in client.poll(clock() + 1):
            events += exchange.num_events
            if (order := next(waiting, None)) is not None:
                client.send(order, due_s=clock(), counts_from_due=False)
    return events


class Protocol(asyncio.Protocol):
    """A connection of asyncio that reads with our HTTP reader."""

    def __init__(self, waiting: Iterator[Order], done: Callable[[int], None]) -> None:
        self._waiting, self._done = waiting, done

    def connection_made(self, transport: Any) -> None:
        """Send the first request."""
        self._transport = transport
        self._next()

    def _next(self) -> None:
        order = next(self._waiting, None)
        if order is None:
            self._transport.close()
            self._done(-1)
            return
        now_s = time.perf_counter()
        self._exchange = Exchange(order, due_s=now_s, since_s=now_s)
        self._transport.write(order.content)

    def data_received(self, data: bytes) -> None:
        """Read a piece."""
        now_s = time.perf_counter()
        if self._exchange.take(data, now_s):
            self._exchange.settle(now_s)
            self._done(self._exchange.num_events)
            self._next()


class ParserProtocol(Protocol):
    """A connection of asyncio that reads with httptools."""

    def _next(self) -> None:
        import httptools  # noqa: PLC0415

        self._parser = httptools.HttpResponseParser(self)
        self._splitter, self._reader = EventSplitter(), DeltaReader(keeps_text=False)
        self._times: list[float] = []
        order = next(self._waiting, None)
        if order is None:
            self._transport.close()
            self._done(-1)
            return
        self._transport.write(order.content)

    def data_received(self, data: bytes) -> None:
        """Read a piece."""
        self._now_s = time.perf_counter()
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Read the events of a part of the body."""
        for event in self._splitter.feed(body):
            if self._reader.read(event) is not None:
                self._times.append(self._now_s)

    def on_message_complete(self) -> None:
        """Go on with the next request."""
        self._done(len(self._times))
        self._next()


def with_asyncio(url: str, streams: int, waiting: Iterator[Order], kind: type[Protocol]) -> int:
    """Connections of asyncio."""
    parts = urlsplit(url)

    async def run() -> int:
        loop = asyncio.get_running_loop()
        ended, left, events = loop.create_future(), streams, 0

        def done(found: int) -> None:
            nonlocal left, events
            if found >= 0:
                events += found
                return
            left -= 1
            if not left:
                ended.set_result(None)

        for _ in range(streams):
            await loop.create_connection(lambda: kind(waiting, done), parts.hostname, parts.port)
        await ended
        return events

    return asyncio.run(run())


def with_aiohttp(url: str, streams: int, waiting: Iterator[Order]) -> int:
    """A session of aiohttp, read as pieces come."""
    import aiohttp  # noqa: PLC0415

    async def user(session: Any) -> int:
        events = 0
        for order in waiting:
            body = order.content.partition(b"\r\n\r\n")[2]
            splitter, reader, times = EventSplitter(), DeltaReader(keeps_text=False), []
            async with session.post(f"{url}/v1/chat/completions", data=body) as answer:
                async for piece in answer.content.iter_any():
                    now_s = time.perf_counter()
                    for event in splitter.feed(piece):
                        if reader.read(event) is not None:
                            times.append(now_s)
            events += len(times)
        return events

    async def run() -> int:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            return sum(await asyncio.gather(*(user(session) for _ in range(streams))))

    return asyncio.run(run())


def once(way: str, options: argparse.Namespace) -> None:
    """Run one way and print its processor time, wall time and events."""
    if way.endswith("uvloop"):
        import uvloop  # noqa: PLC0415

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    waiting = orders(options.url, tokens=options.tokens, requests=options.requests)
    start_s, cpu_s = time.perf_counter(), time.process_time()
    if way == "epoll":
        events = with_epoll(options.url, options.streams, waiting)
    elif way == "aiohttp":
        events = with_aiohttp(options.url, options.streams, waiting)
    else:
        kind = ParserProtocol if way.startswith("httptools") else Protocol
        events = with_asyncio(options.url, options.streams, waiting, kind)
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - start_s
    assert events == options.tokens * options.requests, events
    print(json.dumps({"cpu_s": cpu_s, "wall_s": wall_s, "events": events}))  # noqa: T201


def main() -> None:
    """Run all ways in turns and print the best of each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only")
    options = parser.parse_args()
    if options.only:
        once(options.only, options)
        return
    best: dict[str, dict[str, float]] = {}
    for _ in range(options.rounds):
        for way, package in NEEDS.items():
            if package and importlib.util.find_spec(package) is None:
                continue
            with contextlib.suppress(subprocess.CalledProcessError):
                text = subprocess.run(
                    [sys.executable, __file__, *sys.argv[1:], "--only", way],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
                found = json.loads(text)
                if way not in best or found["cpu_s"] < best[way]["cpu_s"]:
                    best[way] = found
    for way, found in best.items():
        each_us = found["cpu_s"] / found["events"] * 1e6
        print(  # noqa: T201
            f"{way:<18}{each_us:7.2f} us of processor an event, {1e6 / each_us:9,.0f} events per "
            f"processor second, {found['events'] / found['wall_s']:9,.0f} events/s seen"
        )


if __name__ == "__main__":
    main()
