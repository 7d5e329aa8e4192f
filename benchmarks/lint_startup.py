"""Processor time of whole ``k31ctl lint`` processes, beside Python's own start.

Run it with the Python of the environment: ``.venv/bin/python benchmarks/lint_startup.py``.
Medians of processes that take turns and keep bytecode in a folder of their own. Processor time, so
that a busy machine distorts it less than it does time by the clock.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path

FILES = Path(__file__).parents[1] / "tests" / "serve" / "lint_cases"
LINT = ("-m", "k31ctl", "lint", "--on", "8x-b300")
CASES: Mapping[str, Sequence[str]] = {
    "python": ("-c", "pass"),
    "import typer, rich": ("-c", "import typer, rich"),
    "lint, a script": (*LINT, str(FILES / "array-good.sh")),
    "lint, a Compose file": (*LINT, str(FILES / "compose-good.yaml")),
    "lint, a manifest": (*LINT, str(FILES / "deployment-good.yaml")),
    "lint, a script, --json": (*LINT, "--json", str(FILES / "array-good.sh")),
}


def processor_seconds(arguments: Sequence[str], *, environment: Mapping[str, str]) -> float:
    """Seconds of processor time that one process and the system took for it."""
    child = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, env=environment
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{arguments} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure all cases in turns and print a table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, metavar="N")
    runs = parser.parse_args().runs
    found: dict[str, list[float]] = {name: [] for name in CASES}
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        environment = kept | {"PYTHONPYCACHEPREFIX": folder}
        for _ in range(runs + 1):
            for name, arguments in CASES.items():
                found[name].append(processor_seconds(arguments, environment=environment))
    base = statistics.median(found["python"][1:])
    for name, seconds in found.items():
        median = statistics.median(seconds[1:])
        print(f"{name:24} {median:6.3f} s {median / base:6.1f} x python")  # noqa: T201


if __name__ == "__main__":
    main()
