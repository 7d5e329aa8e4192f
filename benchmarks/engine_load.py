"""The embedded engine under load: every answer is held to what the same question says alone.

``python benchmarks/engine_load.py [--model kimi-k3.1-pro] [--requests 2000] [--streams 64]``

Writes a tiny checkpoint and serves it in a process of its own. Each question is asked alone first,
whole and streamed; then all clients ask at a time, leave streams early, and send bodies that are
malformed, too large or never end. What is read to the end must be what was said alone: the same
text, reasoning, calls, end and usage, and log-probabilities within the documented tolerance. At
the end nothing may be held, every slot must be free to be taken, and the process must not have
grown. Exits with 1 where any of it fails.
"""

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx
from engine_load_clients import IDLE, Load, Server
from engine_load_questions import questions

GROWTH_FRACTION: Final = 0.05


@contextmanager
def started(model: str, *, num_slots: int, folder: Path) -> Iterator[Server]:
    """A server of a tiny checkpoint; in the end, what it said on standard error is printed."""
    program = [sys.executable, "-m", "k31ctl"]
    place = folder / "checkpoint"
    made = [*program, "tiny", str(place), "--model", model, "--seed", "7"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    told, log = folder / "ready.json", folder / "log"
    serve = [*program, "serve", str(place), "--engine", "embedded", "--port", "0", "--json"]
    serve += ["--max-num-seqs", str(num_slots), "--max-model-len", "2048"]
    with told.open("w") as out, log.open("w") as errors:
        process = subprocess.Popen(serve, stdout=out, stderr=errors)
    try:
        while not (text := told.read_text()).endswith("}\n"):
            if process.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.2)
        yield Server(json.loads(text)["result"]["url"], process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=60)
        lines = dict(Counter(log.read_text().splitlines()))
        print(f"SIGTERM: exit code {code}; lines on standard error: {lines}")  # noqa: T201


class Ending(NamedTuple):
    """How long it took, and what was found when all clients had gone."""

    alone_s: float
    run_s: float
    held: dict[str, float]
    is_idle: bool
    is_refilled: bool


async def measured(server: Server, options: argparse.Namespace) -> bool:
    """Run everything against one server, print what came of it; whether all is right."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as client:
        load = Load(server, client, seed=options.seed)
        start_s = time.monotonic()
        has_images = options.model != "kimi-linear"
        await load.ask_alone(questions(options.questions, has_images=has_images))
        alone_s = time.monotonic() - start_s
        await load.run(options.requests, num_streams=options.streams)
        run_s = time.monotonic() - start_s - alone_s
        is_idle = await load.comes_to(dict.fromkeys(IDLE, 0))
        held = server.metrics()
        ending = Ending(alone_s, run_s, held, is_idle, await load.fill())
        await load.once_more()
    return shown(load, options, ending)


def shown(load: Load, options: argparse.Namespace, ending: Ending) -> bool:
    """Print a table of it; whether all is right."""
    lines = [
        f"{options.model}: {options.questions} questions alone in {ending.alone_s:.0f} s; "
        f"{options.requests:,} requests, {options.streams} at a time, in {ending.run_s:.0f} s"
    ]
    wrong = Counter(line.partition(" ")[0] for line in load.wrong)
    lines += [f"{'':12}{'sent':>7}{'wrong':>7}"]
    lines += [
        f"{manner:12}{number:7,}{wrong[manner.partition(' ')[0]]:7,}"
        for manner, number in sorted(load.sent.items())
    ]
    held = ", ".join(f"{ending.held[name]:.0f} {name}" for name in IDLE)
    lines += [
        f"in the end: {held.replace('_', ' ')}",
        f"all {ending.held['slots']:.0f} slots taken at once and given back: {ending.is_refilled}",
        f"largest difference of a log-probability: {load.largest_difference:.1e}",
    ]
    is_flat = True
    if quarters := _quarters(load.resident_bytes):
        is_flat = quarters[-1] <= quarters[0] * (1 + GROWTH_FRACTION)
        told = ", ".join(f"{each / 2**20:.0f}" for each in quarters)
        lines += [
            f"resident MiB, median of each quarter: {told}; "
            f"most {max(load.resident_bytes) / 2**20:.0f}"
        ]
    lines += [f"wrong: {line[:1000]}" for line in load.wrong[:10]]
    print("\n".join(lines))  # noqa: T201
    return not load.wrong and ending.is_idle and ending.is_refilled and is_flat


def _quarters(samples: list[int]) -> list[float]:
    size = len(samples) // 4
    return [statistics.median(samples[n * size : (n + 1) * size]) for n in range(4)] if size else []


def main() -> None:
    """Run it against a server of its own, or one that is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="kimi-k3.1-pro")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--url", help="a server that is there, of a tiny checkpoint of --model")
    parser.add_argument("--pid", type=int, help="its process, whose memory is watched")
    options = parser.parse_args()
    if options.url:
        sys.exit(not asyncio.run(measured(Server(options.url, options.pid), options)))
    with (
        tempfile.TemporaryDirectory() as folder,
        started(options.model, num_slots=options.slots, folder=Path(folder)) as server,
    ):
        is_right = asyncio.run(measured(server, options))
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
