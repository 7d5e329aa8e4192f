"""Measure, calibrate, plan, measure another load: the loop with the program as users run it."""

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import fmean

from k31ctl.core.measured_host import HostRates, Rate, processor_node
from k31ctl.report.hardware import profile_yaml
from tests.fetch.tiny_checkpoint import tiny_config
from tests.program import program


@dataclass
class Loop:
    """What was measured of another load, and what a plan said with the calibration and without.

    ``between`` is by how much the longest time end to end of the passes exceeds the shortest: what
    the machine did to the same load. ``said`` is what ``calibrate`` printed.
    """

    measured: dict[str, float]
    before: dict[str, dict[str, float]]
    after: dict[str, dict[str, float]]
    between: float
    said: str

    def ratio(self, quantity: str) -> float:
        """Measured over predicted."""
        return self.measured[quantity] / self.after[quantity]["predicted"]


def k31ctl(*arguments: str) -> str:
    done = program(*arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def machine() -> str:
    """A processor that computes and reads as slowly as suits the server's times."""

    def rate(value: float) -> Rate:
        return Rate(value=value, low=value, high=value, how="as the test has it")

    rates = HostRates(
        processor="a timed loop",
        num_cores=1,
        memory_bytes=32 << 30,
        read=rate(400e6),
        copy=rate(400e6),
        matmul={"bf16": rate(800e6)},
        disk=None,
        disk_folder="",
        disk_capacity_bytes=0,
        loopback=rate(1e9),
        gpus=None,
        not_measured={},
    )
    return profile_yaml(processor_node(rates, node_id="machine", today=date(2026, 11, 29)))


def closed_loop(
    folder: Path,
    url: str,
    *,
    plan: tuple[str, ...],
    loads: tuple[tuple[str, int, int], ...],
    other: tuple[str, int, int],
    output: int = 16,
    passes: int = 1,
    more: tuple[str, ...] = (),
) -> Loop:
    """Fit to ``loads`` (users, prompt tokens, requests), then foretell ``other``.

    All are measured so many times, in turns, so that what else the machine does falls on all.
    ``more`` are options of ``bench``.
    """
    before, site, after = folder / "before.json", folder / "site.yaml", folder / "after.json"
    plan = ("plan", *plan, "--context", "1k", "--json")
    before.write_text(k31ctl(*plan))
    fitted: list[str] = []
    others: list[str] = []
    for number in range(passes):
        for load in (*loads, other):
            run = str(folder / f"run-{number}-{load[0].replace(',', '-')}-{load[1]}")
            bench(url, load, output, "--against", str(before), "--out", run, *more)
            (others if load is other else fitted).append(run)
    said = k31ctl("calibrate", *fitted, "--out", str(site))
    after.write_text(k31ctl(*plan, "--calibration", str(site)))
    compared = [_compared(run, before) for run in others], [_compared(run, after) for run in others]
    measured = {
        name: fmean(stage[name]["measured"] for stage in compared[0]) for name in compared[0][0]
    }
    times = [stage["e2e_s"]["measured"] for stage in compared[0]]
    return Loop(measured, compared[0][0], compared[1][0], max(times) / min(times) - 1, said)


def _compared(run: str, plan: Path) -> dict[str, dict[str, float]]:
    """What the plan says of the only stage of a run, by quantity."""
    found = json.loads(k31ctl("bench", "compare", run, "--against", str(plan), "--json"))
    (stage,) = found["result"]["against"]["stages"]
    return {name: value for name, value in stage.items() if isinstance(value, dict)}


def bench(url: str, load: tuple[str, int, int], output: int, *more: str) -> None:
    users, prompt, requests = load
    sizes = ("--prompt-tokens", str(prompt), "--output-tokens", str(output))
    many = ("--requests", str(requests), "--concurrency", users, "--warmup", "0")
    k31ctl("bench", url, *sizes, *many, *more)


def tiny_plan(folder: Path) -> tuple[str, ...]:
    """The arguments of a plan of a tiny model on that machine."""
    (folder / "config.json").write_text(json.dumps(tiny_config()))
    (folder / "machine.yaml").write_text(machine())
    return (str(folder), "--on", str(folder / "machine.yaml"), "--engine", "embedded")
