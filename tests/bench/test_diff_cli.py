"""``k31ctl bench diff`` and ``--baseline`` as users run them, and the files that they write."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft202012Validator

import k31ctl as package
from k31ctl.bench.gate_names import names
from k31ctl.bench.past import read_page
from k31ctl.bench.result import StageResult
from k31ctl.core.gates import numeric_names
from tests.bench.runs import finished, lines
from tests.bench.sse_server import HEAD, Asked, Step, answer, running_server
from tests.program import program

SCHEMA = Path(package.__file__).parent / "schemas" / "bench-diff.v1.schema.json"
SMALL = ("--requests", "4", "--prompt-tokens", "16", "--output-tokens", "4")


def slowly(asked: Asked) -> Iterator[Step]:
    """Tokens so far apart that what this machine adds is nothing beside it."""
    yield HEAD
    for step in list(answer(asked))[1:]:
        yield 0.03
        yield step


def k31ctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return program("bench", *arguments)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records") / "before"
    with running_server(slowly) as server:
        finished(server.url, num_requests=4, repeat=5, folder=folder)
    return folder


def changed(record: Path, folder: Path, factor: float, **inputs: Any) -> Path:
    """The record of a run that was the same but for its TPOT, with a little noise of its own."""
    folder.mkdir()
    document = json.loads((record / "run.json").read_text())
    document["inputs"] |= inputs
    for n, stage in enumerate(document["stages"]):
        for part in stage["tpot_s"]:
            stage["tpot_s"][part] = factor * (0.03 + 0.0001 * n)
        stage["client"] |= {"is_valid": True, "reasons": []}  # whatever else this machine did
    (folder / "run.json").write_text(json.dumps(document))
    return folder


def test_a_diff_says_what_changed_and_by_how_much(record: Path, tmp_path: Path) -> None:
    before, after = (changed(record, tmp_path / n, x) for n, x in (("a", 1.0), ("b", 1.2)))
    done = k31ctl("diff", str(before), str(after))
    assert done.returncode == 0
    assert "1 worse: TPOT mean +20 % at concurrency 1." in " ".join(done.stdout.split())
    assert max(len(line) for line in done.stdout.splitlines() if str(tmp_path) not in line) <= 80


def test_a_diff_meets_its_schema(record: Path, tmp_path: Path) -> None:
    before, after = (
        changed(record, tmp_path / "a", 1.0),
        changed(record, tmp_path / "b", 1.2, seed=3),
    )
    done = k31ctl("diff", str(before), str(after), "--max-regression", "5%", "--json")
    document = json.loads(done.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert document["result"]["settings"] == [
        {"after": 3, "before": 0, "is_load": False, "name": "seed"}
    ]
    assert done.returncode == 4
    assert document["result"]["regressions"][0]["metric"] == "tpot_s.mean"


def test_a_regression_is_exit_4_with_its_interval(record: Path, tmp_path: Path) -> None:
    before, after = (changed(record, tmp_path / n, x) for n, x in (("a", 1.0), ("b", 1.1)))
    for most, code in (("5%", 4), ("0.05", 4), ("15%", 0)):
        done = k31ctl("diff", str(before), str(after), "--max-regression", most)
        assert done.returncode == code, done.stderr
    assert k31ctl("diff", str(after), str(before), "--max-regression", "0").returncode == 0


def test_a_change_of_the_load_is_no_comparison_for_a_gate(record: Path, tmp_path: Path) -> None:
    after = changed(record, tmp_path / "b", 1.0, output_tokens=9)
    shown = k31ctl("diff", str(record), str(after))
    gated = k31ctl("diff", str(record), str(after), "--max-regression", "5%")
    assert "ANOTHER LOAD" in shown.stdout
    assert (gated.returncode, gated.stdout) == (3, "")
    assert len(gated.stderr.splitlines()) == 3


def test_a_run_is_held_against_its_baseline(record: Path, tmp_path: Path) -> None:
    slow, report, summary = changed(record, tmp_path / "fast", 0.1), "junit.xml", "summary.md"
    with running_server(slowly) as server:
        done = k31ctl(
            server.url,
            *(*SMALL, "--repeat", "5", "--baseline", str(slow), "--max-regression", "20%"),
            *("--junit", str(tmp_path / report), "--markdown", str(tmp_path / summary)),
            *("--gate", "errors==0", "--gate", "ttft_s.p50<=0.000001"),
        )
    suite = ET.parse(tmp_path / report).getroot()[0]
    names = {case.get("name"): case for case in suite}
    failed = {case.get("name") for case in suite if case.find("failure") is not None}
    assert done.returncode == 4
    assert {"ttft_s.p50<=0.000001", "tpot_s.mean against the baseline"} <= failed
    assert "errors==0" not in failed
    assert suite.get("failures") == str(len(suite.findall("./testcase/failure")))
    assert {"errors==0", "requests are answered", "the client keeps up"} <= set(names)
    text = (tmp_path / summary).read_text()
    assert text.startswith("## mock at http://127.0.0.1")
    assert "**Failed.**" in text
    assert "| TPOT mean, ms |" in text


def test_the_document_of_a_run_is_a_baseline_as_well(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    with running_server(slowly) as server:
        arguments = (server.url, *SMALL, "--repeat", "2", "--json")
        path.write_text(k31ctl(*arguments).stdout)
        done = k31ctl(*arguments, "--baseline", str(path), "--max-regression", "100%")
    document = json.loads(done.stdout)
    schema = SCHEMA.parent / "bench.v1.schema.json"
    Draft202012Validator(json.loads(schema.read_text())).validate(document)
    assert document["result"]["baseline"]["regressions"] == []
    assert document["result"]["baseline"]["stages"][0]["num_before"] == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("diff", "/nowhere", "/nowhere"), 3, "cannot be read: no such file"),
        (("http://host", "--max-regression", "5%"), 2, "a regression is against a baseline"),
        (("http://host", "--baseline", "/nowhere"), 3, "cannot be read"),
        (("diff", "a", "b", "--max-regression", "x"), 2, "is not a share"),
        (("http://host", "--gate", "ttft_s.p98<=1"), 2, "not a number of a measurement"),
        (("http://host", "--markdown", "-", "--json"), 2, "cannot go to one place"),
    ],
)
def test_mistakes_are_told_in_three_lines(
    arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = k31ctl(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 3


def test_every_number_of_a_stage_may_be_named_by_a_gate_beforehand(record: Path) -> None:
    stage = json.loads((record / "run.json").read_text())["stages"][0]
    measured = {name for name in numeric_names(stage) if not name.startswith("errors_by_kind")}
    assert len(measured) > 50
    assert measured <= set(names(StageResult))


def test_a_csv_of_a_diff_has_a_row_for_every_figure(record: Path) -> None:
    rows = k31ctl("diff", str(record), str(record), "--csv", "-").stdout.splitlines()
    assert rows[0].startswith("stage,num_before,num_after,metric,before,after,change,low,high,p")
    named = {row.split(",")[3]: row.split(",")[-1] for row in rows[1:]}
    assert (named["tpot_s.mean"], named["tpot_s.p90"]) == ("noise", "")


def test_what_a_server_says_cannot_break_a_table_or_a_document(
    record: Path, tmp_path: Path
) -> None:
    evil, folder = "a|b\n<script>\x1b[31m\x00", tmp_path / "evil"
    document = deepcopy(json.loads((record / "run.json").read_text()))
    document["server"]["version"] = evil
    for stage in document["stages"]:
        stage["name"] = f"concurrency 1{evil}"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(document))
    done = k31ctl("diff", str(folder), str(folder), "--junit", "-")
    assert ET.fromstring(done.stdout).tag == "testsuites"
    table = k31ctl("diff", str(folder), str(folder), "--markdown", "-").stdout
    assert "<script>" not in table
    assert "\x1b" not in table + k31ctl("diff", str(folder), str(folder)).stdout


def test_a_stage_that_has_ended_is_in_the_record_of_a_crash(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running_server(slowly) as server:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "k31ctl", "bench", server.url, *SMALL),
                *("--repeat", "50", "--out", str(folder)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while len(server.completions()) < 12:
            assert process.poll() is None
        process.kill()
        process.wait()
    run = json.loads((folder / "run.json").read_text())
    assert run["state"] == "running"
    assert [stage["completed"] for stage in run["stages"]][:2] == [4, 4]
    assert len(lines(folder / "requests.jsonl")) >= 8


def test_what_a_crash_left_of_a_stage_is_shown(tmp_path: Path) -> None:
    folder, page = tmp_path / "run", tmp_path / "run.html"
    with running_server(slowly) as server:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "k31ctl", "bench", server.url, *SMALL[2:]),
                *("--duration", "60", "--out", str(folder)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        rows = folder / "requests.jsonl"
        while not (rows.exists() and rows.stat().st_size):
            assert process.poll() is None
        process.kill()
        process.wait()
    with rows.open("a") as file:
        file.write('{"stage": 0, "error": nul')  # a line that the crash cut off
    count = len(lines(rows)) - 1
    stages = read_page(folder)["stages"]
    assert [stage["completed"] for stage in stages] == [count]
    assert stages[0]["tpot_s"]["max"] > 0.01
    done = k31ctl("report", str(folder), "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert "broken off" in page.read_text()
    rows.write_text('{"stage": 0, "error": null, "ended_s": 1, "ttft_s": "x"}')
    spoilt = k31ctl("report", str(folder), "--html", str(page))
    assert (spoilt.returncode, len(spoilt.stderr.splitlines())) == (3, 3)


def test_a_record_names_all_that_it_takes_to_do_it_again(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "one"}\n')
    with running_server(answer) as server:
        finished(server.url, dataset=rows, folder=tmp_path / "run")
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["files"][0]["bytes"] == 18
    assert len(run["files"][0]["sha256"]) == 64
    assert {"command", "version", "python", "platform", "num_cpus"} <= run.keys()
    assert {"server", "inputs", "started", "ended", "tokens_from", "plan"} <= run.keys()


def test_a_run_that_no_request_survives_is_recorded_as_failed(tmp_path: Path) -> None:
    def refusing(_: Asked) -> Iterator[Step]:
        yield b"HTTP/1.1 400 X\r\nContent-Length: 2\r\n\r\nno"

    with running_server(refusing) as server:
        done = k31ctl(server.url, "--out", str(tmp_path / "run"))
    assert done.returncode == 6
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "failed"


@pytest.mark.parametrize("blocks", [1, 2, 4])  # from the start, in the middle, at the very end
def test_a_full_disk_is_told_in_three_lines(tmp_path: Path, blocks: int) -> None:
    limited = f"ulimit -f {blocks}; exec {sys.executable} -m k31ctl bench"
    with running_server(answer) as server:
        done = subprocess.run(
            ["bash", "-c", f"{limited} {server.url} --requests 100 --output-tokens 4 --out run"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=tmp_path,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
    assert done.returncode == 3
    assert "error: the measurement cannot be written: file too large" in done.stderr
    assert not list((tmp_path / "run").glob(".*"))
    assert "Traceback" not in done.stderr
