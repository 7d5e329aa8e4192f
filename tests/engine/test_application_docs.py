"""The examples of docs/applications.md: where a tiny model computes, and with set answers."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import torch
from PIL import Image

from k31ctl.engine.service.generator import Generation
from k31ctl.engine.service.model_stepper import opened
from k31ctl.engine.tensors import Target
from tests.engine.conftest import Tiny
from tests.engine.scripted import ScriptedGenerator, ids_of, served, small_model

PAGE = (Path(__file__).parents[2] / "docs" / "applications.md").read_text()
SECTIONS = re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = {
    title: code
    for title, text in SECTIONS
    for code in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
}
JSON = {"Content-Type": "application/json"}
ADDRESS = "http://127.0.0.1:8000"
RUN_ALL = """
import contextlib, io, json, sys
said = {}
for way, examples in json.load(sys.stdin).items():
    said[way] = {}
    for title, code in examples.items():
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, title, "exec"), {"__name__": "__main__"})
        said[way][title] = printed.getvalue()
print(json.dumps(said))
"""
RESPONSE = "Wet.<|close|>think<|sep|><|open|>response<|sep|>Take it.<|close|>response<|sep|>"
CALL = (
    '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument '
    'key="city" type="string"<|sep|>Oslo<|close|>argument<|sep|><|close|>call<|sep|>'
    "<|close|>tools<|sep|>"
)
END = "<|close|>message<|sep|><|end_of_msg|>"


class Busy(BaseHTTPRequestHandler):
    """Refuses the first question as busy, breaks off the answer to the second, passes on others."""

    protocol_version = "HTTP/1.1"
    behind = ""
    num_asked = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Busy.num_asked += 1
        if self.num_asked == 1:
            self._say(429, b"{}", {"Retry-After": "1"})
        elif self.num_asked == 2:
            piece = b'data: {"choices": [{"index": 0, "delta": {"content": "Do not"}}]}\n\n'
            kind = {"Content-Type": "text/event-stream", "Connection": "close"}
            self._say(200, piece, kind, missing=100)
        else:
            answer = httpx.post(self.behind + self.path, content=body, headers=JSON)
            self._say(200, answer.content, {"Content-Type": answer.headers["Content-Type"]})

    def _say(self, status: int, body: bytes, headers: dict[str, str], missing: int = 0) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body) + missing)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = missing > 0

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@contextmanager
def busy(behind: str) -> Iterator[str]:
    """The address of a service that is busy at first, before one that is not."""
    handler = type("BusyBefore", (Busy,), {"behind": behind})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def computing(tiny: Tiny) -> Iterator[str]:
    """The address of a service whose tiny random model computes."""
    folder, target = tiny("kimi-k3.1-pro"), Target(dtype=torch.float32, device=torch.device("cpu"))
    model, generator = opened(folder, target, name="tiny", num_slots=2, num_tokens=8192)
    with closing(generator), served(model, generator) as url:
        yield url


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service whose model calls a tool until it has its result."""
    model = small_model(tmp_path_factory.mktemp("checkpoint"))

    def script(work: Generation) -> Sequence[int]:
        prompt = b"".join(model.tokenizer.bytes_of(token) for token in work.prompt_ids)
        calls = b"get_weather" in prompt and b"rain in Oslo" not in prompt
        return ids_of(model.tokenizer, RESPONSE + (CALL if calls else "") + END)

    with served(model, ScriptedGenerator(script)) as url:
        yield url


@pytest.fixture(scope="module")
def said(
    computing: str, calling: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, str]]:
    """What every example prints with either model; one process, which imports once.

    Answers of the computing one are short. The example of retries asks through a busy service.
    """
    folder = tmp_path_factory.mktemp("examples")
    Image.new("RGB", (56, 56), "teal").save(folder / "chart.png")
    short = {
        title: re.sub(r"max_tokens=\d+", "max_tokens=6", EXAMPLES[title]) for title in EXAMPLES
    }
    with busy(calling) as busy_url:
        called = {
            title: code.replace(ADDRESS, busy_url if "max_retries" in code else calling)
            for title, code in EXAMPLES.items()
        }
        computed = {title: code.replace(ADDRESS, computing) for title, code in short.items()}
        done = subprocess.run(
            [sys.executable, "-c", RUN_ALL],
            input=json.dumps({"computed": computed, "called": called}),
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def told(said: dict[str, dict[str, str]]) -> dict[str, str]:
    return said["called"]


def test_every_example_runs_where_a_model_computes(said: dict[str, dict[str, str]]) -> None:
    computed = said["computed"]
    assert list(computed) == list(EXAMPLES)
    assert all(computed.values())
    assert "the longest request is" in computed["Count tokens before you send"]
    assert int(computed["Images"].split()[-1]) > 0


def test_a_question_shows_reasoning_and_answer_apart(told: dict[str, str]) -> None:
    assert told["A question"] == "thought: Wet.\nsaid: Take it.\n"


def test_a_conversation_keeps_its_reasoning(told: dict[str, str]) -> None:
    assert told["Send the reasoning back"] == (
        "['user', 'assistant', 'user', 'assistant']\nkept: True\n"
    )


def test_a_tool_is_called_and_its_result_is_answered(told: dict[str, str]) -> None:
    assert told["Tools"] == "['user', 'assistant', 'tool', 'assistant']\nsaid: Take it.\n"


def test_a_stream_is_gathered_into_a_message_that_can_be_sent_back(told: dict[str, str]) -> None:
    message, finish = told["Streaming"].splitlines()
    assert "'reasoning_content': 'Wet.'" in message
    assert "'content': 'Take it.'" in message
    assert finish.startswith("finish: stop tokens: ")


def test_what_is_refused_as_busy_or_breaks_off_is_asked_again(told: dict[str, str]) -> None:
    assert told["Retries and time-outs"] == "said: Take it.\n"
    assert Busy.num_asked == 3
