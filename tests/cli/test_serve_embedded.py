"""The embedded engine as users start and stop it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from tests.cli.test_schemas import schema
from tests.program import Done, program
from tests.smoke import damage

pytest.importorskip("torch", reason="the extra engine is not installed")

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("--engine", "embedded", "--port", "0", "--device", "cpu", "--max-num-seqs", "2")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "80"}
HIDE_TORCH = """
import sys
sys.modules["torch"] = None
from k31ctl.cli.main import main
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def tiny(k31ctl: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tiny-k31"
    assert k31ctl("tiny", str(folder)).returncode == 0
    return folder


def refused(*arguments: str) -> Done:
    return program("serve", *arguments, environment=ENVIRONMENT, loaded=("torch",))


@contextmanager
def started(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "k31ctl", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until_ready(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """The address, and all lines up to the one that tells it."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("ready: "):
            return line.split()[3], lines
    raise AssertionError("".join(lines))


def said(url: str, **options: Any) -> httpx.Response:
    body = {"prompt": "The sky", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    return httpx.post(f"{url}/completions", json=body, timeout=120, **options)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_plans_answers_and_ends_when_told(tiny: Path, number: int, code: int) -> None:
    with started(str(tiny), *SMALL) as process:
        url, lines = until_ready(process)
        answer = said(url)
        process.send_signal(number)
        assert process.wait(timeout=60) == code
    text = "".join(lines)
    assert text.index("weights") < text.index("computed by") < text.index("ready: tiny-k31 at")
    assert "not for production traffic" in text
    assert "cpu: asked for" in text
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 4


def test_a_key_from_a_file_goes_before_one_of_the_environment(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("right\n")
    with started(str(tiny), *SMALL, "--api-key-file", str(file), K31CTL_API_KEY="other") as process:
        url, _ = until_ready(process)
        statuses = [
            said(url, headers={"Authorization": f"Bearer {key}"}).status_code
            for key in ("right", "other")
        ]
    assert statuses == [200, 401]


def test_its_document_meets_its_schema_and_tells_the_address(tiny: Path) -> None:
    stages = ("--device", "cpu,cpu", "--experts", "streamed", "--experts-ready", "1MB")
    with started(str(tiny), *SMALL, "--json", "--layers", "0-3", "--plain", *stages) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        text = ""
        while not text.endswith("\n}\n"):
            text += process.stdout.readline()
        document = json.loads(text)
        Draft202012Validator(schema("serve-embedded")).validate(document)
        assert said(document["result"]["url"] + "/v1").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.stderr.read().startswith("experts: ")
    memory = document["result"]["memory"]
    assert memory["fits"]
    assert [stage["layers"] for stage in memory["stages"]] == [[0, 2], [3, 3]]
    assert sum(stage["total_bytes"] for stage in memory["stages"]) == memory["total_bytes"]
    ready = [line for line in memory["lines"] if line["key"] == "experts_ready_bytes"]
    assert [line["num_bytes"] for line in ready] == [1_000_000]
    assert any("plain torch, as asked" in path for path in document["result"]["paths"])


def test_a_taken_port_is_told_before_anything_is_planned(tiny: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = refused(str(tiny), "--engine", "embedded", "--port", port)
    assert (done.returncode, done.stdout) == (3, "")
    assert "Address already in use\n" in done.stderr


def test_what_does_not_fit_is_refused_with_a_way_out(tiny: Path) -> None:
    asked = ("--max-num-seqs", "4096", "--engine", "embedded", "--device", "cpu")
    done = refused(str(tiny), *asked, "--max-model-len", "1m")
    assert (done.returncode, done.stdout) == (4, "")
    assert "GiB are free" in done.stderr
    assert "do: use --max-model-len" in done.stderr


def test_a_part_of_a_checkpoint_is_refused_without_layers(tiny: Path) -> None:
    marker = tiny / "k31ctl-partial.json"
    marker.write_text(json.dumps({"schema": "k31ctl/partial/v1", "selection": "layers 0-3"}))
    try:
        done = refused(str(tiny), *SMALL)
        with started(str(tiny), *SMALL, "--layers", "0-3") as process:
            _, lines = until_ready(process)
    finally:
        marker.unlink()
    assert done.returncode == 4
    assert "this is a part of a checkpoint: layers 0-3" in done.stderr
    assert "Layers 0 to 3 alone of 6" in "".join(lines)


def test_layers_without_what_is_around_them_are_refused(tiny: Path, tmp_path: Path) -> None:
    damage.cut_out(tiny, tmp_path / "part", range(2, 5))
    done = refused(str(tmp_path / "part"), *SMALL, "--layers", "2-4")
    assert done.returncode == 4
    assert "the embedding and the head are not in this part" in done.stderr
    assert "k31ctl smoke --layers" in done.stderr


def test_without_torch_it_says_what_to_install(tiny: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDE_TORCH, "serve", str(tiny), "--engine", "embedded"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "error: the embedded engine needs torch, which is not installed\n"
        "   at: this Python\n"
        "   do: pip install 'k31ctl[engine]'\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("kimi-k3", "--engine", "embedded"), 2, "runs a checkpoint that is here"),
        (("kimi-k3", "--plain"), 2, "at: --plain"),
        (("kimi-k3", "--port", "0"), 2, "this is an option of the embedded engine"),
        (("TINY", "--engine", "embedded", "--tp", "2", "--as", "shell"), 2, "at: --as, --tp"),
        (("TINY", "--engine", "embedded", "--device", "cpu,cuda:1"), 2, "'cuda:1' is no device"),
        (("TINY", "--engine", "embedded", "--experts-ready", "1GB"), 2, "add --experts streamed"),
        (("TINY", "--engine", "embedded", "--layers", "3-1"), 2, "ends before it begins"),
        (("TINY", "--engine", "embedded", "--layers", "0-9"), 3, "numbered from 0"),
        (("TINY", "--engine", "embedded", "--api-key-file", "/nowhere"), 3, "holds no key"),
    ],
)
def test_mistakes_are_told(tiny: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = refused(*(str(tiny) if each == "TINY" else each for each in arguments))
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
