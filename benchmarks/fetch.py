"""Download with proof against ``hf download`` without, bytes asked twice after kills, dry run.

The dry run needs nothing: ``python benchmarks/fetch.py``. The rest needs a stand-in for the hub,
already running, and the ``hf`` program:

    python benchmarks/fetch.py http://127.0.0.1:8099 --hf PATH/hf --folder DIR [--runs 3]

The hub holds ``bench/dl`` (4 files of 512 MiB); it counts requests and bytes at ``/_ctl``. Runs of
the two programs alternate, on the same disk.
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
from tempfile import TemporaryDirectory
from typing import Any, Final

from inspect_k3 import fixture_made_apart
from loopback_hub import serving

from k31ctl.catalog.models import load_model
from k31ctl.catalog.store import Store, default_folders

REPO: Final = "bench/dl"
K3: Final = "moonshotai/Kimi-K3"
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


def timed(
    command: Sequence[str], environment: dict[str, str], *, may_fail: bool = False
) -> tuple[float, float, float]:
    """Run a program; returns seconds, its CPU seconds and its peak memory in MiB."""
    start = time.perf_counter()
    told = subprocess.DEVNULL if may_fail else None
    child = subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=told
    )
    _, status, used = os.wait4(child.pid, 0)
    if status and not may_fail:  # 1.56 TB need not have room here
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


def dry_run(runs: int) -> None:
    """Print requests, wall and processor seconds of a dry run over Kimi K3's 96 shards.

    The repository is made here, of sparse files, and served by a hub of this folder. Bytecode is
    kept, as an installed program keeps it; the first run writes it and is left out.
    """
    model = load_model(Store(default_folders()), "kimi-k3")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "repository"
        folder.mkdir()
        fixture_made_apart(folder, model)
        kept = {"PYTHONPYCACHEPREFIX": f"{temporary}/bytecode", "PYTHONDONTWRITEBYTECODE": ""}
        with serving(folder, K3) as served:
            command = ours(served.url, Path(temporary) / "target", "--dry-run", repo=K3)
            rows = [timed(command, kept, may_fail=True) for _ in range(runs + 1)][1:]
            num_requests = served.num_requests() / (runs + 1)
    wall, used, memory = (statistics.median(column) for column in zip(*rows, strict=True))
    print(  # noqa: T201
        f"dry run: {num_requests:g} requests, {wall:.2f} s, {used:.2f} s CPU, {memory:.0f} MiB; "
        f"load of the machine {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    """Run all, or the dry run alone where no hub is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hub", nargs="?")
    parser.add_argument("--hf")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    if given.hub:
        if not (given.hf and given.folder):
            parser.error("beside a hub, --hf and --folder are needed")
        compare(given.hub, given.hf, given.folder, given.runs, ("--no-sync",))
        compare(given.hub, given.hf, given.folder, given.runs, ())
        kills(given.hub, given.folder)
    dry_run(given.runs)


if __name__ == "__main__":
    main()
