"""``bench --against`` and ``bench compare`` as users run them, against a server of known timing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import k31ctl as package
from tests.bench.sse_server import HEAD, Asked, Step, answer, running_server
from tests.program import program

SCHEMAS = Path(package.__file__).parent / "schemas"
LOAD = ("--prompt-tokens", "64", "--output-tokens", "4", "--requests", "4", "--warmup", "0")


def timed(asked: Asked) -> Iterator[Step]:
    """The first token after 0.4 s, then one every 0.15 s: far from what a busy machine adds."""
    yield HEAD
    yield 0.25
    for step in list(answer(asked))[1:]:
        yield 0.15
        yield step


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    done = program("plan", "kimi-k3", "--on", "8x-b300", "--nodes", "1", "--json")
    path.write_text(done.stdout)
    return path


@pytest.fixture(scope="module")
def record(plan: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("runs") / "run"
    with running_server(timed) as server:
        done = program(
            *("bench", server.url, *LOAD, "--concurrency", "1,2"),
            *("--against", str(plan), "--out", str(folder), "--json"),
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return folder, found


def test_a_run_is_held_against_its_plan_stage_by_stage(
    record: tuple[Path, dict[str, Any]],
) -> None:
    _, document = record
    schema = json.loads((SCHEMAS / "bench.v1.schema.json").read_text())
    Draft202012Validator(schema).validate(document)
    stages = document["result"]["against"]["stages"]
    assert [stage["concurrency"] for stage in stages] == [1, 2]
    first = stages[0]
    assert (first["prompt_tokens"], first["output_tokens"]) == (7, 4)  # as the server counts
    assert first["ttft_s"]["measured"] == document["result"]["sweep"][0]["ttft_s"]["mean"]
    held = first["tpot_s"]
    assert held["ratio"] == pytest.approx(held["measured"] / held["predicted"])
    assert held["within"] == (held["low"] <= held["measured"] <= held["high"])


def test_the_record_keeps_the_plan_and_compares_alike(
    record: tuple[Path, dict[str, Any]], plan: Path, tmp_path: Path
) -> None:
    folder, document = record
    answered = tmp_path / "answer.json"
    answered.write_text(json.dumps(document))
    schema = json.loads((SCHEMAS / "bench-compare.v1.schema.json").read_text())
    for arguments in (
        (str(folder),),
        (str(folder / "run.json"),),
        (str(folder), "--against", str(plan)),
        (str(answered), "--against", str(plan)),
    ):
        done = program("bench", "compare", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        Draft202012Validator(schema).validate(found)
        assert found["result"]["against"] == document["result"]["against"]


def test_a_gate_on_a_ratio_holds_or_is_exit_4(record: tuple[Path, dict[str, Any]]) -> None:
    folder, document = record
    worst = max(s["tpot_s"]["ratio"] for s in document["result"]["against"]["stages"])
    fine = program(
        "bench", "compare", str(folder), "--gate", f"against.tpot_s.ratio<={worst + 0.1}"
    )
    over = program(
        "bench", "compare", str(folder), "--gate", f"against.tpot_s.ratio<={worst - 0.1}"
    )
    assert (fine.returncode, over.returncode) == (0, 4)
    assert "does not hold" in over.stderr
    assert "likely off:" in over.stdout


def test_the_table_is_80_columns_wide(record: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = record
    done = program("bench", "compare", str(folder))
    lines = done.stdout.splitlines()
    assert "predicted" in lines[1]
    assert max(map(len, lines)) <= 80


def test_a_plan_of_a_model_that_is_not_here_says_where_its_path_counts_from(
    plan: Path, tmp_path: Path, record: tuple[Path, dict[str, Any]]
) -> None:
    document = json.loads(plan.read_text())
    document["inputs"]["deployment"]["model"] = "./tiny"
    elsewhere = tmp_path / "plan.json"
    elsewhere.write_text(json.dumps(document))
    done = program("bench", "compare", str(record[0]), "--against", str(elsewhere))
    assert done.returncode == 3
    assert f"at: ./tiny, in {elsewhere}" in done.stderr
    assert "from the folder where it was made" in done.stderr


def test_a_plan_whose_files_changed_says_so(plan: Path, tmp_path: Path, record: Any) -> None:
    document = json.loads(plan.read_text())
    document["result"]["performance"]["itl_s"] *= 1.5
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(document))
    done = program("bench", "compare", str(record[0]), "--against", str(changed))
    assert done.returncode == 0
    assert "changed since" in done.stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "not the document of a plan"),
        ("{", "not readable as JSON"),
        ('{"schema": "k31ctl/plan/v1", "inputs": {}, "result": {}}', "not the document of a plan"),
        (
            '{"schema": "k31ctl/plan/v1", "inputs": {"deployment": {"model": 1}}, "result": {}}',
            "inputs.deployment",
        ),
    ],
)
def test_what_is_no_plan_is_exit_3_before_anything_is_sent(
    content: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(content)
    with running_server() as server:
        done = program("bench", server.url, *LOAD, "--against", str(path))
    assert (done.returncode, done.stdout, server.asked) == (3, "", [])
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.parametrize(
    "content", ["{}", "[]", "nonsense", '{"schema": "k31ctl/bench-record/v1"}']
)
def test_what_is_no_record_is_exit_3(content: str, plan: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(content)
    done = program("bench", "compare", str(path), "--against", str(plan))
    assert (done.returncode, done.stdout) == (3, "")
    assert "do: name a folder of k31ctl bench --out" in done.stderr


def test_a_record_without_a_plan_asks_for_one(tmp_path: Path) -> None:
    with running_server(timed) as server:
        program("bench", server.url, *LOAD, "--out", str(tmp_path / "run"))
    done = program("bench", "compare", str(tmp_path / "run"))
    assert done.returncode == 3
    assert "--against PLAN.json" in done.stderr
