"""The service as a program: its address, its end, and what it needs to start."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from k31ctl.engine.service.limits import Limits
from k31ctl.engine.service.server import require_free, run_service
from k31ctl.errors import InputError
from tests.engine.scripted import ScriptedGenerator, gauge, served, small_model, wait_until

PROGRAM = """
import sys
from pathlib import Path
from k31ctl.engine.service.server import run_service
from tests.engine.scripted import ScriptedGenerator, small_model
said = lambda url: print(url, flush=True)
generator = ScriptedGenerator(lambda _: [65] * 8000, pause_s=0.01)
run_service(small_model(Path(sys.argv[1])), generator, port=0, when_ready=said)
"""


def test_it_says_where_it_is_and_ends_when_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        url = program.stdout.readline().decode().strip()
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{url}/health", timeout=60) as response:
            assert response.status == 200
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=60)
    assert program.returncode != 0
    assert b"KeyboardInterrupt" in errors.splitlines()[-1]


def opened(url: str, path: str, body: bytes, *, length: int) -> socket.socket:
    """A connection on which a request, or its beginning, has been sent and nothing read."""
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    client = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60)
    client.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + body)
    return client


def chat(url: str, *, is_streamed: bool) -> socket.socket:
    messages = [{"role": "user", "content": "Hi"}]
    body = json.dumps({"messages": messages, "stream": is_streamed}).encode()
    return opened(url, "/v1/chat/completions", body, length=len(body))


def answer_of(client: socket.socket) -> tuple[int, str]:
    response = http.client.HTTPResponse(client)
    response.begin()
    return response.status, response.read().decode()


def test_open_answers_are_told_when_it_is_terminated(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        url = program.stdout.readline().decode().strip()
        with (
            chat(url, is_streamed=True) as stream,
            chat(url, is_streamed=False) as whole,
            opened(url, "/tokenize", b"{", length=9) as half,
        ):
            wait_until(lambda: gauge(url, "num_requests_running") == 2)
            program.send_signal(signal.SIGTERM)
            (status, streamed), *others = map(answer_of, (stream, whole, half))
        _, errors = program.communicate(timeout=60)
    assert status == 200
    *_, failure, done, rest = streamed.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert json.loads(failure.removeprefix("data: "))["error"]["type"] == "overloaded_error"
    assert [status for status, _ in others] == [503, 503]
    assert {json.loads(text)["error"]["type"] for _, text in others} == {"overloaded_error"}
    assert (program.returncode, errors) == (-signal.SIGTERM, b"")


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError) as refused:
            run_service(small_model(tmp_path), ScriptedGenerator(lambda _: ()), port=port)
    assert refused.value.where == f"127.0.0.1:{port}"
    assert refused.value.what == "cannot be listened on: Address already in use"


def test_no_name_is_not_every_interface() -> None:
    with pytest.raises(InputError, match="is empty"):
        require_free("", 0)


def connected(url: str, sent: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60)
    client.sendall(sent)
    return client


def health(url: str) -> int:
    with connected(url, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n") as client:
        return answer_of(client)[0]


def test_one_connection_too_many_is_told_to_come_back(tmp_path: Path) -> None:
    generator = ScriptedGenerator(lambda _: [65])
    with served(small_model(tmp_path), generator, limits=Limits(max_connections=2)) as url:
        silent = [connected(url, b"GET /health HT") for _ in range(2)]
        with connected(url, b"") as another:
            assert answer_of(another)[0] == 503
        for client in silent:
            client.close()
        wait_until(lambda: health(url) == 200)


@pytest.mark.parametrize("begun", [b"", b"GET /health HTTP/1.1\r\nHost: a\r\nX: "])
def test_a_client_that_does_not_say_what_it_wants_is_hung_up_on(
    tmp_path: Path, begun: bytes
) -> None:
    generator = ScriptedGenerator(lambda _: [65])
    with (
        served(small_model(tmp_path), generator, limits=Limits(head_s=0.2)) as url,
        connected(url, begun) as client,
    ):
        status, text = answer_of(client)
        assert (status, "did not begin and end its headers" in text) == (408, True)
        assert client.recv(1) == b""


def test_a_second_request_may_not_trickle_in_either(tmp_path: Path) -> None:
    generator = ScriptedGenerator(lambda _: [65])
    asked = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    with (
        served(small_model(tmp_path), generator, limits=Limits(head_s=0.2)) as url,
        connected(url, asked) as client,
    ):
        assert answer_of(client)[0] == 200
        client.sendall(b"GET /hea")
        assert answer_of(client)[0] == 408
