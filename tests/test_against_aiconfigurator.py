import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "against_aiconfigurator.py"
# Stands for an interpreter with aiconfigurator: writes down what it is asked, refuses prompts of
# 28,400 tokens, and answers everything else with the same round figures.
FAR_SIDE = f"""#!{sys.executable}
import json, pathlib, sys
calls = json.load(sys.stdin)
pathlib.Path(__file__).with_name("asked.json").write_text(json.dumps(calls))
print(json.dumps({{"version": "0.12.0", "seconds": 1.0}}))
for call in calls:
    if call["isl"] == 28400:
        print(json.dumps({{"refused": "OOM: too long", "seconds": 1.0}}))
        continue
    print(json.dumps({{
        "data": "sglang 0.5.14", "warning": "", "requests_per_s": 0.5, "tok_s": 500.0,
        "tok_s_per_user": 50.0, "tpot_ms": 20.0, "ttft_ms": 400.0, "seconds": 1.0,
    }}))
"""


def compared(*arguments: str) -> "subprocess.CompletedProcess[str]":
    kept = {k: v for k, v in os.environ.items() if k != "AICONFIGURATOR_PYTHON"}
    return subprocess.run(
        [sys.executable, SCRIPT, "--no-cross", *arguments],
        capture_output=True,
        text=True,
        env=kept | {"PYTHONPATH": str(ROOT), "PATH": "/nowhere"},
        check=False,
    )


@pytest.fixture(scope="module")
def far_side(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("peer") / "python"
    program.write_text(FAR_SIDE)
    program.chmod(0o755)
    return program


@pytest.fixture(scope="module")
def answered(far_side: Path) -> str:
    return compared("--python", str(far_side)).stdout


def test_without_the_peer_our_own_table_comes_and_the_reason() -> None:
    done = compared()
    assert done.returncode == 0
    assert "| h200-pp2-c16 | tpot_ms | 26.5 |" in done.stdout
    assert "aiconfigurator is left out: no aiconfigurator on PATH" in done.stdout


def test_a_python_without_the_peer_is_a_reason_too() -> None:
    done = compared("--python", sys.executable)
    assert done.returncode == 0
    assert "ModuleNotFoundError: No module named 'aiconfigurator'" in done.stdout


def test_a_pipeline_is_asked_with_the_batch_of_one_stage(answered: str, far_side: Path) -> None:
    asked = json.loads(far_side.with_name("asked.json").read_text())
    batches = {
        (c["tp_size"], c["pp_size"], c["batch_size"])
        for c in asked
        if c["system_name"] == "b200_sxm" and c["pp_size"] > 1
    }
    # published at 8 and 16 requests, two stages
    assert batches == {(8, 2, 4), (8, 2, 8)}


def test_one_request_gets_half_of_what_two_stages_serve(answered: str) -> None:
    # 0.5 requests/s x 1,000 tokens, of two requests of which one was measured
    row = next(r for r in answered.splitlines() if r.startswith("| h200-pp2-c1 | out_tok_s"))
    assert row.split(" | ")[6] == "250"


def test_a_point_that_is_refused_is_named_with_the_reason(answered: str) -> None:
    assert "- b200-tp16ep16-32k-c8: aiconfigurator OOM: too long" in answered
    assert "- mi355x-tp8ep8-c1: aiconfigurator has no system like 8x-mi355x" in answered
