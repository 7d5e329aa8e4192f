"""Measure, calibrate, plan, measure another load: the loop with the program as users run it."""

import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from k31ctl.core.measured_host import HostRates, Rate, processor_node
from k31ctl.report.hardware import profile_yaml
from tests.fetch.tiny_checkpoint import tiny_config

OUTPUT = 16


@dataclass
class Loop:
    """What was measured of another load, and what a plan said with the calibration and without."""

    measured: dict[str, float]
    before: dict[str, Any]
    after: dict[str, Any]
    said: str

    def ratio(self, quantity: str) -> float:
        """Measured over predicted."""
        return float(self.measured[quantity] / self.after[quantity])


def k31ctl(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "k31ctl", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
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
        read=rate(20e6),
        copy=rate(20e6),
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
    other: tuple[int, int, int],
) -> Loop:
    """Fit to ``loads`` (users, prompt tokens, requests), then foretell ``other``."""
    first, runs = folder / "plan.json", []
    first.write_text(k31ctl("plan", *plan, "--context", "1k", "--json"))
    for several, prompt, requests in loads:
        runs.append(str(folder / f"run-{several.replace(',', '-')}-{prompt}"))
        bench(url, several, prompt, requests, "--against", str(first), "--out", runs[-1])
    site = folder / "site.yaml"
    said = k31ctl("calibrate", *runs, "--out", str(site))
    users, prompt, requests = other
    found = bench(url, str(users), prompt, requests, "--against", str(first))
    (stage,) = found["result"]["against"]["stages"]
    measured = {q: v["measured"] for q, v in stage.items() if isinstance(v, dict)}
    load = (
        *("--prompt-tokens", str(stage["prompt_tokens"])),
        *("--output-tokens", str(stage["output_tokens"])),
        *("--concurrency", str(users), "--json"),
    )
    before = json.loads(k31ctl("plan", *plan, *load))["result"]["performance"]
    after = json.loads(k31ctl("plan", *plan, *load, "--calibration", str(site)))
    return Loop(measured, before, after["result"]["performance"], said)


def bench(url: str, users: str, prompt: int, requests: int, *more: str) -> dict[str, Any]:
    sizes = ("--prompt-tokens", str(prompt), "--output-tokens", str(OUTPUT))
    many = ("--requests", str(requests), "--concurrency", users, "--warmup", "0")
    found: dict[str, Any] = json.loads(k31ctl("bench", url, *sizes, *many, *more, "--json"))
    return found


def tiny_plan(folder: Path) -> tuple[str, ...]:
    """The arguments of a plan of a tiny model on that machine."""
    (folder / "config.json").write_text(json.dumps(tiny_config()))
    (folder / "machine.yaml").write_text(machine())
    return (str(folder), "--on", str(folder / "machine.yaml"), "--engine", "embedded")
