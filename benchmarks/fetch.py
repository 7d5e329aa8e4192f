"""Download with proof against ``hf download`` without, bytes asked twice after kills, dry run.

Needs the stand-in for the hub with its fixtures, already running, and the ``hf`` program:

    python benchmarks/fetch.py http://127.0.0.1:8099 --hf PATH/hf --folder DIR [--runs 3]

The hub holds ``bench/dl`` (4 files of 512 MiB) and ``moonshotai/Kimi-K3`` (96 sparse shards); it
counts requests and bytes at ``/_ctl``. Runs of the two programs alternate, on the same disk.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

REPO: Final = "bench/dl"
KILLS: Final = 10


def control(hub: str, state: dict[str, object] | None = None) -> dict[str, Any]:
    """Set the hub's state and return its counters."""
    data = json.dumps(state).encode() if state is not None else None
    request = urllib.request.Request(
        f"{hub}/_ctl", data=data, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)["stat"]
    return found


def timed(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float, float]:
    """Run a program; returns seconds, its CPU seconds and its peak memory in MiB."""
    start = time.perf_counter()
    child = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"status {status} from {command}")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def ours(hub: str, folder: Path, *options: str, repo: str = REPO) -> list[str]:
    """Return our command."""
    target = ["--to", str(folder), "--endpoint", hub]
    return [sys.executable, "-m", "k31ctl", "fetch", repo, *target, *options, "--json"]


def compare(hub: str, hf: str, folder: Path, runs: int, options: Sequence[str]) -> None:
    """Print the seconds of both programs, in turns, and the ratio of the medians."""
    found: dict[str, list[tuple[float, float, float]]] = {"hf": [], "k31ctl": []}
    target = folder / "d"
    theirs = {"HF_ENDPOINT": hub, "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_XET": "1"}
    for _ in range(runs):
        for name, command in (
            ("hf", [hf, "download", REPO, "--local-dir", str(target)]),
            ("k31ctl", ours(hub, target, *options)),
        ):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            os.sync()
            found[name].append(timed(command, theirs))
    for name, rows in found.items():
        seconds, cpu, memory = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{name:8} {seconds:6.2f} s  {cpu:5.2f} s CPU  {memory:4.0f} MiB")  # noqa: T201
    ratio = statistics.median(a[0] for a in found["k31ctl"]) / statistics.median(
        a[0] for a in found["hf"]
    )
    print(f"ratio {ratio:.2f} with {' '.join(options) or 'no options'}")  # noqa: T201


def kills(hub: str, folder: Path) -> None:
    """Print how many bytes were asked for twice after SIGKILL at random moments."""
    some = random.Random(5)
    shutil.rmtree(folder, ignore_errors=True)
    control(hub, {"reset": True})
    for _ in range(KILLS):
        child = subprocess.Popen(
            ours(hub, folder / "d", "--connections", "4"), stdout=subprocess.DEVNULL
        )
        time.sleep(0.5 + some.random() * 0.8)
        child.kill()
        child.wait()
    done = subprocess.run(
        ours(hub, folder / "d", "--connections", "4"), capture_output=True, check=True
    )
    result = json.loads(done.stdout)["result"]
    twice = control(hub)["bytes"] - result["bytes_total"]
    left = [path.name for path in folder.rglob("*.part")]
    print(  # noqa: T201
        f"{KILLS} kills: {twice / 2**20:.1f} MiB asked twice "
        f"({twice / 2**20 / (KILLS + 1):.1f} each), verified {result['verified']}, left {left}"
    )


def dry_run(hub: str, folder: Path) -> None:
    """Print requests and seconds of a dry run over the 96 shards."""
    control(hub, {"reset": True})
    start = time.perf_counter()
    command = ours(hub, folder, "--dry-run", repo="moonshotai/Kimi-K3")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    requests = control(hub)["requests"]
    print(f"dry run: exit {done.returncode}, {requests} requests, {seconds:.2f} s")  # noqa: T201


def main() -> None:
    """Run all three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hub")
    parser.add_argument("--hf", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    compare(given.hub, given.hf, given.folder, given.runs, ("--no-sync",))
    compare(given.hub, given.hf, given.folder, given.runs, ())
    kills(given.hub, given.folder)
    dry_run(given.hub, given.folder)


if __name__ == "__main__":
    main()
