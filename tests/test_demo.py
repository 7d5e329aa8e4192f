"""The demo, run once as ``make demo`` runs it with smaller loads, and ended before its time."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from demo.__main__ import BUSY, run
from demo.loop import SHORT, STEPS, Amounts, Step
from demo.program import Program
from tests.documents import ROOT, Block, own_commands
from tests.test_docs_blocks import refusal

pytest.importorskip("torch", reason="the extra engine is not installed")


def started(temporary: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "demo", "--short"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_in(folder: Path) -> list[str]:
    """Files that are left there, and processes that still work there."""
    processes = []
    for process in psutil.process_iter(["cwd", "cmdline"]):
        if str(process.info["cwd"]).startswith(str(folder)):
            processes.append(str(process.info["cmdline"]))
    return [*map(str, folder.rglob("*")), *processes]


def test_the_loop_closes_and_leaves_nothing(tmp_path: Path) -> None:
    process = started(tmp_path)
    said, errors = process.communicate(timeout=600)
    assert left_in(tmp_path) == []
    if process.returncode == 4 and BUSY in errors:
        pytest.skip(f"other work on this machine is too much to calibrate: {errors}")
    assert (process.returncode, errors) == (0, "")
    assert re.findall(r"(?m)^ ?(\d+)  ([\w -]+): ", said) == [
        (str(number), step.name) for number, step in enumerate(STEPS, start=1)
    ]
    assert f"The loop is closed: {len(STEPS)} steps in" in said
    assert "Of 3 checks 3 passed, 0 failed" in said
    assert re.search(
        r"It kept \d.*, asked for the other \d.*, and proved\s+(\d) of\s+\1 files", said
    )
    shown = Block(
        page=ROOT / "Makefile",
        line=0,
        kind="console",
        body=re.sub("(?m)^ {4}", "", said),
        why_not=None,
    )
    commands = list(own_commands(shown))
    assert len(commands) == said.count("$ k31ctl ")
    assert [refusal(command) for command in commands] == [""] * len(commands)


def test_a_step_that_fails_ends_the_loop_and_its_server(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    addresses = []

    def tiny(program: Program, _: Amounts) -> Iterator[str]:
        yield str(program.ask("tiny", "weights", into="tiny.json")["num_tensors"])

    def failing(program: Program, _: Amounts) -> Iterator[str]:
        addresses.append(program.url)
        assert httpx.get(f"{program.url}/health").is_success
        program.ask("inspect", "nowhere", into="inspect.json")
        yield "no such folder, and yet"

    steps = [
        Step(name="tiny", question="?", run=tiny),
        *(step for step in STEPS if step.name == "serve"),
        Step(name="inspect", question="?", run=failing),
        *STEPS[:1],
    ]
    assert run(tmp_path, SHORT, is_kept=True, steps=steps) == 3
    said, errors = capfd.readouterr()
    assert said.endswith("step 3, inspect, failed: exit code 3 from: k31ctl inspect nowhere\n")
    assert errors.startswith("error: ")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{addresses[0]}/health")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_can_be_ended_at_any_time(tmp_path: Path, number: int, code: int) -> None:
    process = started(tmp_path)
    assert process.stdout is not None
    assert any("$ k31ctl plan" in line for line in process.stdout)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert left_in(tmp_path) == []


def test_the_demo_has_the_torch_of_the_tests() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pinned,) = re.findall(r"(?m)^TORCH := (.*)$", (ROOT / "Makefile").read_text())
    assert pinned in project["optional-dependencies"]["oracles"]
