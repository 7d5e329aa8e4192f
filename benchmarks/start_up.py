"""What each command costs before it does anything, and a few jobs: CPU seconds of a process.

Run ``python benchmarks/start_up.py [RUNS]``; the least of RUNS is shown, 3 if not given. CPU time
is what a busy machine disturbs least, and the ratio to importing typer and rich less still; all
but a few milliseconds of a ``--help`` are imports.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from k31ctl.cli.main import COMMANDS, DEFAULTS, GROUPS

MOST_S: Final = 0.5
JOBS: Final = (
    "plan kimi-k3",
    "plan --json",
    "plan --context 8k,128k,1m --batch 1,8,64 --csv -",
    "plan kimi-k3 --html page.html",
    "serve kimi-k3 --engine vllm --on 8x-b300",
    "lint --on 8x-b300 -- vllm serve moonshotai/Kimi-K3 -tp 8",
    "inspect tiny-k3",
    "verify tiny-k3",
    "licence kimi-k3",
    "doctor --only gpu-count",
    "profiles list",
    "profiles check",
)


def helps() -> Iterator[str]:
    """Every command with ``--help``."""
    yield "--version"
    yield "--help"
    for name in COMMANDS:
        yield f"{name} --help"
    for group in GROUPS:
        subs = DEFAULTS[group][1] if group in DEFAULTS else ("list", "show", "check", "extract")
        for sub in subs:
            yield f"{group} {sub} --help"


def cpu_s(arguments: Sequence[str], folder: str) -> float:
    """User and system seconds of one process."""
    with (Path(folder) / "output").open("w") as output:
        child = subprocess.Popen(
            [sys.executable, *arguments], cwd=folder, stdout=output, stderr=output
        )
        _, _, used = os.wait4(child.pid, 0)
        child.returncode = 0
    return used.ru_utime + used.ru_stime


def least(line: str, runs: int) -> float:
    """The least of several runs, each in a folder with nothing but a tiny checkpoint."""
    words = line.split()
    with TemporaryDirectory() as folder:
        if line.endswith(" tiny-k3"):
            cpu_s(("-m", "k31ctl", "tiny", "tiny-k3", "--model", "kimi-k3"), folder)
        return min(cpu_s(("-m", "k31ctl", *words), folder) for _ in range(runs))


def main() -> None:
    """Print the table, slow ones marked."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with TemporaryDirectory() as folder:
        base_s = min(cpu_s(("-c", "import typer, rich"), folder) for _ in range(runs))
    print(f"{'CPU s':>6}{'ratio':>7}")  # noqa: T201
    print(f"{base_s:6.2f}{1:7.2f}  import typer, rich")  # noqa: T201
    for line in (*helps(), *JOBS):
        found_s = least(line, runs)
        mark = "  slow" if found_s > MOST_S else ""
        print(f"{found_s:6.2f}{found_s / base_s:7.2f}  k31ctl {line}{mark}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
