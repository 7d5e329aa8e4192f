"""Whole-process time and memory of a full search, and how many candidates it computes in a second.

Run it with the Python of the environment: ``.venv/bin/python benchmarks/plan_search.py``.
The search walks six systems, every layout on one and two nodes, three contexts and five loads, with
cost and both fronts, as the program that a user starts.
"""

import json
import os
import statistics
import subprocess
import sys
import time

from k31ctl.catalog.measurements import load_trials
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.store import Store, default_folders
from k31ctl.core.prediction import service_of
from k31ctl.core.step_times import StepTimes

SYSTEMS = "8x-h200,8x-b200,8x-b300,4x-gb200,4x-gb300,8x-mi355x"
COMMAND = (
    "-m", "k31ctl", "plan", "kimi-k3", "--search", "--systems", SYSTEMS,
    "--context", "8k,32k,128k", "--batch", "1,4,16,64,128", "--kv-dtype", "fp8",
    "--max-nodes", "2",
)  # fmt: skip
ROUNDS = 7
MOST_STAGES = 2
BAR_S, BAR_MB, BAR_PER_S = 1.5, 150, 20_000


def run(*extra: str) -> tuple[float, float, str]:
    """Seconds, peak MB and output of one search in a process of its own."""
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, *COMMAND, *extra], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"the search ended with {os.waitstatus_to_exitcode(status)}")
    return seconds, usage.ru_maxrss / 1024, output


def candidates_per_s() -> tuple[int, float]:
    """Candidates of the same search, and how many of them the closed form does in a second."""
    store = Store(default_folders())
    speed = load_speed(store)
    trials = [t for t in load_trials(store, "kimi-k3", speed)[0] if t.case.layout.pp <= MOST_STAGES]
    times = [(t, StepTimes(t.case.step(speed))) for t in trials]
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < 1.0:
        for trial, step in times:
            service_of(
                trial.case, step, trial.measurement.workload, most_running=trial.most_running
            )
        count += len(times)
    return count, count / (time.perf_counter() - start)


def main() -> None:
    """Print the search's time and memory, and the closed form's rate, against the bars."""
    runs = [run() for _ in range(ROUNDS)]
    result = json.loads(run("--json")[2])["result"]
    seconds, peak = statistics.median(r[0] for r in runs), max(r[1] for r in runs)
    _, rate = candidates_per_s()
    sys.stdout.write(
        f"{result['num_deployments']} deployments, {result['num_evaluated']} candidates computed\n"
        f"whole process   {seconds:6.2f} s (best {min(r[0] for r in runs):.2f}, bar {BAR_S})\n"
        f"peak memory     {peak:6.0f} MB (bar {BAR_MB})\n"
        f"closed form     {rate:6,.0f} candidates/s on one core (bar {BAR_PER_S:,})\n"
        f"Python {sys.version.split()[0]}\n"
    )


if __name__ == "__main__":
    main()
