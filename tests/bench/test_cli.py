"""``k31ctl bench`` as users run it."""

import json
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import k31ctl as package
from tests.bench.runs import lines
from tests.bench.sse_server import (
    HEAD,
    Asked,
    Step,
    answer,
    chunk,
    delta,
    event,
    plain,
    running_server,
)
from tests.program import program

SCHEMA = Path(package.__file__).parent / "schemas" / "bench.v1.schema.json"


def slowly(asked: Asked) -> Iterator[Step]:
    """Tokens 30 ms apart, so that a test's own machine is no part of the measurement."""
    yield HEAD
    for step in list(answer(asked))[1:]:
        yield 0.03
        yield step


def k31ctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return program("bench", *arguments)


SMALL = ("--requests", "4", "--prompt-tokens", "8", "--output-tokens", "4")
ENDLESS = (*SMALL[2:], "--duration", "60", "--out")


def test_the_document_meets_its_schema() -> None:
    with running_server(slowly) as server:
        done = k31ctl(server.url, *SMALL, "--concurrency", "1,2", "--repeat", "2", "--json")
    document = json.loads(done.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    result = document["result"]
    assert len(result["sweep"]) == 4
    assert (result["requests"], result["errors"], result["tokens"]["output"]) == (4, 0, 16)
    assert {repeat["name"] for repeat in result["repeats"]} == {"concurrency 1", "concurrency 2"}


def test_the_word_load_may_be_there_and_options_may_come_first() -> None:
    with running_server(slowly) as server:
        for arguments in (("load", server.url, *SMALL), (*SMALL, server.url)):
            done = k31ctl(*arguments)
            assert "4 answered, 0 failed" in done.stdout, done.stderr


def test_a_gate_that_does_not_hold_is_exit_4_after_the_answer() -> None:
    with running_server(slowly) as server:
        done = k31ctl(server.url, *SMALL, "--gate", "ttft_s.p99<=0.001")
    assert done.returncode == 4
    assert "4 answered" in done.stdout
    assert "error: ttft_s.p99<=0.001 does not hold" in done.stderr


def test_a_csv_has_a_row_for_every_stage(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    with running_server(slowly) as server:
        k31ctl(server.url, *SMALL, "--concurrency", "1,2", "--csv", str(path))
    head, *rows = lines(path)
    assert head.startswith("name,concurrency,rate,repeat,requests,completed,errors,duration_s")
    assert [row.split(",")[0] for row in rows] == ["concurrency 1", "concurrency 2"]


def test_a_page_that_cannot_be_written_loses_no_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()

    def removing(asked: Asked) -> Iterator[Step]:
        if folder.exists():
            folder.rmdir()
        yield from answer(asked)

    with running_server(removing) as server:
        done = k31ctl(server.url, *SMALL, "--json", "--html", str(folder / "page.html"))
    assert (done.returncode, json.loads(done.stdout)["result"]["completed"]) == (3, 4)
    assert "error: cannot write page.html: no such file or directory" in done.stderr


def test_a_record_holds_every_request_and_every_gap(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running_server(slowly) as server:
        k31ctl(server.url, *SMALL, "--out", str(folder))
        again = k31ctl(server.url, *SMALL, "--out", str(folder))
    rows = [json.loads(line) for line in lines(folder / "requests.jsonl")]
    gaps = array("f", (folder / "gaps-0.f32").read_bytes())
    run = json.loads((folder / "run.json").read_text())
    assert [row["number"] for row in rows] == [0, 1, 2, 3]
    assert len(gaps) == sum(row["events"] - 1 for row in rows) == 12
    assert (run["state"], run["schema"]) == ("complete", "k31ctl/bench-record/v1")
    assert run["stages"][0]["completed"] == 4
    assert again.returncode == 3
    assert "never written over another" in again.stderr


def test_an_interrupt_keeps_and_shows_what_was_measured(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running_server(slowly) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "k31ctl", "bench", server.url, *ENDLESS, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while len(server.completions()) < 5:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopped early" in out
    rows = [json.loads(line) for line in lines(folder / "requests.jsonl")]
    assert sum(row["error"] is None for row in rows) >= 3
    assert json.loads((folder / "run.json").read_text())["state"] == "interrupted"


def test_a_crash_keeps_what_was_measured(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running_server(slowly) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "k31ctl", "bench", server.url, *ENDLESS, str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        rows = folder / "requests.jsonl"
        while not (rows.exists() and rows.stat().st_size):
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.wait()
    assert json.loads(lines(rows)[0])["error"] is None
    assert json.loads((folder / "run.json").read_text())["state"] == "running"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("http://127.0.0.1:9",), 6, "cannot be reached: connection refused"),
        (("ftp://host",), 2, "is not an HTTP URL"),
        (("http://host?x=1",), 2, "more than a host and a path"),
        (("http://host", "--concurrency", "1", "--rate", "2"), 2, "a load is one of"),
        (("http://host", "--rate", "0"), 2, "not a rate above 0"),
        (("http://host", "--body", "stream=false"), 2, "set by the load itself"),
        (("http://host", "--trace", "/nowhere"), 3, "no such file"),
        (("http://host", "--dataset", "/nowhere"), 3, "cannot be read"),
        (("http://host", "--turns", "2", "--rate", "1"), 2, "in a closed loop"),
        (("http://host", "--ramp", "1:2", "--saturate"), 2, "saturation is sought"),
        (("http://host", "--ramp", "3"), 2, "has no two rates"),
        (("http://host", "--slo", "ttft<1"), 2, "not a latency"),
    ],
)
def test_mistakes_are_told_in_three_lines(
    arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = k31ctl(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 3


def test_a_model_that_is_not_served_is_told_with_those_that_are() -> None:
    with running_server() as server:
        done = k31ctl(server.url, "--model", "other")
    assert done.returncode == 6
    assert "does not serve other" in done.stderr
    assert "mock" in done.stderr


def test_an_endpoint_that_answers_no_request_is_exit_6_with_its_words() -> None:
    with running_server(lambda _: iter([plain(400, {"error": "max_tokens is wrong"})])) as server:
        done = k31ctl(server.url, *SMALL)
    assert done.returncode == 6
    assert "http_400" in done.stderr
    assert "max_tokens is wrong" in done.stderr


def test_a_key_is_sent_and_never_written(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running_server(slowly) as server:
        done = subprocess.run(
            [sys.executable, "-m", "k31ctl", "bench", server.url, *SMALL, "--out", str(folder)],
            env={"K31CTL_API_KEY": "sk-secret", "PATH": "/usr/bin"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert "4 answered" in done.stdout, done.stderr
    assert {a.headers.get("authorization") for a in server.asked} == {"Bearer sk-secret"}
    written = "".join(p.read_text() for p in folder.glob("*.json*"))
    assert "sk-secret" not in written + done.stdout + done.stderr


def test_a_client_that_cannot_keep_up_says_so_loudly() -> None:
    burst = chunk(event(delta(content=" tok"))) * 200

    def flood(asked: Asked) -> Iterator[Step]:
        yield HEAD
        for _ in range(50):
            yield burst
        yield chunk(event(delta(finish="stop"))) + b"0\r\n\r\n"

    with running_server(flood) as server:
        done = k31ctl(
            server.url,
            "--concurrency",
            "8",
            "--requests",
            "60",
            "--output-tokens",
            "10000",
            "--warmup",
            "0",
        )
    assert done.returncode == 4
    assert "not a valid measurement" in done.stderr
    assert "DID NOT KEEP UP" in done.stdout
