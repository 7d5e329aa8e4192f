"""Bodies that are small to send and large to read, and clients that send only large ones."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from k31ctl.engine.service.limits import Limits
from k31ctl.engine.service.tasks import ServedModel
from tests.engine.scripted import ScriptedGenerator, served, small_model, wait_until

JSON = {"Content-Type": "application/json"}
LIMITS = Limits(max_pending_bytes=100_000, max_connections=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    return small_model(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def url(model: ServedModel) -> Iterator[str]:
    with served(model, ScriptedGenerator(lambda _: [65]), limits=LIMITS) as address:
        yield address


def answer(url: str, content: bytes, path: str = "/v1/completions") -> tuple[int, Any]:
    response = httpx.post(url + path, content=content, headers=JSON, timeout=60)
    return response.status_code, response.json()


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
@pytest.mark.parametrize("value", [b"[],", b"{},[", b"1,"])
def test_a_body_of_more_values_than_the_context_has_use_for_is_not_read(
    model: ServedModel, path: str, value: bytes
) -> None:
    content = b'{"prompt": "a", "x": [' + value * 140_000
    with served(model, ScriptedGenerator(lambda _: [65])) as url:
        status, document = answer(url, content, path)
    assert (status, document["error"]["code"]) == (400, "context_length_exceeded")
    assert "commas and brackets" in document["error"]["message"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"seed": ' + b"9" * 5000 + b"}", "5000 digits"),
        (b"[" * 20_000, "nested too deeply"),
        (b'{"prompt": "a", "echo": true}', "echo is true, which is not offered"),
        (b'{"prompt": "a", "echo": 3}', "or send false"),
    ],
)
def test_what_is_wrong_is_told_in_words_of_json(url: str, content: bytes, told: str) -> None:
    status, document = answer(url, content)
    message = document["error"]["message"]
    assert (status, told in message) == (400, True), message
    assert not any(word in message for word in ("sys.", "recursion", "True", "False"))


def test_large_bodies_that_do_not_end_keep_no_small_one_out(url: str) -> None:
    def filled(size: int) -> bytes:
        return json.dumps({"prompt": "a"}).encode().ljust(size)

    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    with ExitStack() as open_ones:
        for _ in range(2):
            client = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
            open_ones.enter_context(client)
            client.sendall(head + b"Content-Length: 99999\r\n\r\n" + b" " * 49_000)
        wait_until(lambda: answer(url, filled(30_000))[0] == 503)
        assert answer(url, filled(20_000))[0] == 200
    wait_until(lambda: answer(url, filled(30_000))[0] == 200)
