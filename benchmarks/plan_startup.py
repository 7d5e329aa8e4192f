"""Whole-process time and memory of ``k31ctl plan``, beside Python with the same libraries.

Run it with the Python of the environment: ``.venv/bin/python benchmarks/plan_startup.py``.
Times are medians of whole processes that take turns, so that a slow minute hits all alike.
All of them may keep bytecode, in a folder of their own, as an installed program does.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence

CONTEXTS = ",".join(f"{1024 * n}" for n in range(1, 41))
BATCHES = ",".join(f"{n}" for n in range(1, 26))
CASES: Mapping[str, Sequence[str]] = {
    "python": ("-c", "pass"),
    "import typer, rich": ("-c", "import typer, rich"),
    "a typer program of one option": (
        "-c",
        "import typer\ndef f(n: int = 1) -> None: pass\ntyper.run(f)",
    ),
    "k31ctl plan": ("-m", "k31ctl", "plan"),
    "k31ctl plan --json": ("-m", "k31ctl", "plan", "--json"),
    "plan, 1,000 cells, --json": (
        "-m", "k31ctl", "plan", "--context", CONTEXTS, "--batch", BATCHES, "--json",
    ),
}  # fmt: skip
BASE = "import typer, rich"


def timed(arguments: Sequence[str], *, environment: Mapping[str, str]) -> tuple[float, int]:
    """Seconds and peak resident bytes of one process."""
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, env=environment
    )
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{arguments} ended with {child.returncode}")
    kib = usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss // 1024
    return seconds, kib * 1024


def main() -> None:
    """Measure all cases in turns and print a table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15, metavar="N")
    runs = parser.parse_args().runs
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in CASES}
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        environment = kept | {"PYTHONPYCACHEPREFIX": folder}
        for _ in range(runs + 1):
            for name, arguments in CASES.items():
                found[name].append(timed(arguments, environment=environment))
    # The first round fills caches of bytecode and files and is left out.
    medians = {
        name: statistics.median(s for s, _ in all_runs[1:]) for name, all_runs in found.items()
    }
    print(f"median of {runs} whole processes, Python {sys.version.split()[0]}")  # noqa: T201
    print(f"{'':<32}{'s':>8}{'ratio':>8}{'peak MB':>9}")  # noqa: T201
    for name, seconds in medians.items():
        peak = max(size for _, size in found[name]) / 1e6
        print(f"{name:<32}{seconds:>8.3f}{seconds / medians[BASE]:>8.2f}{peak:>9.1f}")  # noqa: T201


if __name__ == "__main__":
    main()
