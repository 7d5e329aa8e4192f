"""``k31ctl bench conformance`` as users run it."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

import k31ctl as package
from tests.bench.conformance import mutations as broken
from tests.bench.conformance.pretend_service import KEY, Service, serving
from tests.bench.conformance.runs import BOTH
from tests.program import program

SCHEMA = Path(package.__file__).parent / "schemas" / "conformance.v1.schema.json"
QUICK = ("--check", "answer-shape", "--check", "usage")


def k31ctl(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return program(
        *("bench", "conformance", *arguments),
        environment={**os.environ, "COLUMNS": "80", **environment},
    )


def result_of(done: subprocess.CompletedProcess[str]) -> Any:
    document = json.loads(done.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    return document["result"]


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_a_kept_contract_is_exit_0_and_meets_the_schema(api: str) -> None:
    with serving(Service(), paths=BOTH) as url:
        done = k31ctl(url, "--api", api, "--json")
    result = result_of(done)
    assert done.returncode == 0, done.stderr
    assert (result["kept"], result["failed"], result["api"]) == (True, 0, api)
    assert all(check["evidence"] for check in result["results"] if check["verdict"] == "passed")


@pytest.mark.parametrize(
    ("paths", "ending", "api"),
    [
        (("/v1/messages",), "", "messages"),
        (BOTH, "/v1/messages", "messages"),
        (BOTH, "/v1/chat/completions", "chat"),
        (BOTH, "", "chat"),
    ],
)
def test_the_kind_of_api_is_found(paths: tuple[str, ...], ending: str, api: str) -> None:
    with serving(Service(), paths=paths) as url:
        assert result_of(k31ctl(url + ending, *QUICK, "--json"))["api"] == api


def test_a_broken_contract_is_exit_4_with_evidence() -> None:
    with serving(broken.WrongTotal()) as url:
        done = k31ctl(url, *QUICK)
    assert done.returncode == 4
    assert "usage               FAILED" in done.stdout
    assert "asked {" in done.stdout
    assert done.stderr.startswith("error: the contract is broken: 1 check failed, usage\n")


def test_text_fits_a_terminal() -> None:
    with serving(broken.MixesArguments()) as url:
        done = k31ctl(url, "--check", "parallel-calls")
    assert "parallel-calls: Calls made at once" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_a_warning_is_told_and_breaks_nothing_unless_a_gate_says_so() -> None:
    with serving(broken.NoLogprobs()) as url:
        done = k31ctl(url, "--check", "logprobs")
        gated = k31ctl(url, "--check", "logprobs", "--gate", "warnings==0")
    assert (done.returncode, gated.returncode) == (0, 4)
    assert "logprobs            warning" in done.stdout


def test_junit_has_a_case_for_every_check(tmp_path: Path) -> None:
    path = tmp_path / "conformance.xml"
    with serving(broken.WrongTotal()) as url:
        k31ctl(url, "--skip", "cancellation", "--junit", str(path))
    root = ElementTree.parse(path).getroot()
    cases = {case.attrib["name"]: case for case in root.iter("testcase")}
    assert root.attrib["failures"] == "1"
    assert len(cases) == int(root.attrib["tests"])
    (failure,) = cases["usage"].findall("failure")
    assert failure.text is not None
    assert "evidence" in failure.text
    assert cases["wrong-key"].find("skipped") is not None


class Gossip(Service):
    """Tells the key to everybody, in an answer and in an error."""

    key = KEY

    def whole(self, *given: Any) -> dict[str, Any]:
        return {**super().whole(*given), "debug": f"Bearer {self.key} x", "object": self.key}

    def fault(self, status: int, message: str) -> Any:
        return super().fault(status, f"{message} for {self.key}")


def test_a_key_is_in_no_evidence_however_often_the_server_says_it(tmp_path: Path) -> None:
    path = tmp_path / "conformance.xml"
    with serving(Gossip()) as url:
        done = k31ctl(url, "--json", "--junit", str(path), MY_KEY=KEY)
        named = k31ctl(url, "--api-key-env", "MY_KEY", "--json", "--junit", str(path), MY_KEY=KEY)
        text = k31ctl(url, "--api-key-env", "MY_KEY", MY_KEY=KEY)
    assert done.returncode == 6, "without the key nothing is answered"
    assert "--api-key-env" in done.stderr
    assert result_of(named)["failed"] > 0
    for told in (named.stdout, named.stderr, text.stdout, text.stderr):
        assert KEY not in told
    assert KEY not in path.read_text()
    assert "[hidden]" in named.stdout


def test_what_cannot_be_reached_is_exit_6() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = k31ctl(f"http://127.0.0.1:{port}")
    assert (done.returncode, done.stdout) == (6, "")
    assert "cannot be reached" in done.stderr


def test_an_endpoint_that_answers_no_question_is_exit_6() -> None:
    class Down(Service):
        def check(self, chat: Mapping[str, Any]) -> None:
            super().check({**chat, "model": None})

    with serving(Down()) as url:
        done = k31ctl(url)
    assert (done.returncode, done.stdout) == (6, "")
    assert "no question is answered" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--check", "nothing"), "there is no check 'nothing'"),
        (("--skip", "answer-shape"), "no check is left to run"),
        (("--gate", "happy==true"), "happy is not a number in the result"),
    ],
)
def test_a_mistake_in_options_is_exit_2(arguments: tuple[str, ...], told: str) -> None:
    with serving(Service()) as url:
        done = k31ctl(url, *QUICK[:2], *arguments)
    assert done.returncode == 2
    assert told in done.stderr


@contextmanager
def silent_after(num: int) -> Iterator[Service]:
    """A service that stops answering after so many questions."""

    class Silent(Service):
        asked = 0

        def check(self, chat: Mapping[str, Any]) -> None:
            super().check(chat)
            self.asked += 1
            if self.asked > num:
                self.closing.wait()

    service = Silent()
    try:
        yield service
    finally:
        service.closing.set()


def test_a_check_without_an_answer_ends_in_its_time() -> None:
    with silent_after(2) as service, serving(service) as url:
        done = k31ctl(url, *QUICK, "--check-timeout", "0.5", "--json")
    verdicts = {each["id"]: each for each in result_of(done)["results"]}
    assert verdicts["answer-shape"]["verdict"] == "passed"
    assert verdicts["usage"]["verdict"] == "inconclusive"
    assert "not done within" in verdicts["usage"]["detail"]


def test_an_interrupt_shows_what_was_found_so_far() -> None:
    with silent_after(2) as service, serving(service) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "k31ctl", "bench", "conformance", url, *QUICK,
             "--check", "stop"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        pause = threading.Event()
        while getattr(service, "asked", 0) < 3:
            assert process.poll() is None
            pause.wait(0.02)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopped early" in out
    assert "answer-shape        passed" in out


def test_an_endpoint_that_goes_away_is_told_once() -> None:
    class Mortal(Service):
        def check(self, chat: Mapping[str, Any]) -> None:
            super().check(chat)
            if "17 + 25" in str(chat["messages"]) and chat.get("stream"):
                self.closing.set()
                self.die()

    service = Mortal()
    with serving(service, paths=BOTH) as url:
        done = k31ctl(url, "--json")
    verdicts = [each["verdict"] for each in result_of(done)["results"]]
    assert done.returncode == 4
    assert "can no longer be reached" in done.stdout
    assert verdicts.count("failed") <= 2
    assert verdicts.count("skipped") > 20


def test_a_time_budget_leaves_checks_out_and_says_so() -> None:
    with silent_after(1) as service, serving(service) as url:
        done = k31ctl(url, *QUICK, "--time-budget", "1", "--json")
    first, last = result_of(done)["results"]
    assert (first["verdict"], last["verdict"]) == ("inconclusive", "skipped")
    assert last["detail"] == "the time budget was used up before it"
