"""Whatever an endpoint answers, every check comes to a verdict."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.bench.conformance.chat_api import ChatApi
from k31ctl.bench.conformance.messages_api import MessagesApi
from k31ctl.bench.conformance.redaction import HIDDEN, Redaction
from k31ctl.bench.conformance.reply import Api
from k31ctl.bench.conformance.verdicts import CheckResult, Verdict
from tests.bench.conformance.runs import ended
from tests.bench.sse_server import (
    END,
    HEAD,
    RESET,
    Asked,
    Step,
    chunk,
    event,
    plain,
    running_server,
)

NAMES = st.sampled_from(
    ["choices", "message", "delta", "content", "tool_calls", "function", "usage", "error", "type",
     "index", "content_block", "prompt_tokens", "id", "reasoning", "message_start", "object"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=30,
)
APIS: tuple[Api, ...] = (ChatApi(), MessagesApi())


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@given(document=JSON)
@settings(max_examples=80, deadline=None)
def test_any_document_is_read(api: Api, document: Any) -> None:
    reply = api.whole(200, {}, document)
    assert isinstance(reply.content, str)
    assert api.whole(400, {}, document).is_refused


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@given(events=st.lists(JSON.map(json.dumps).map(str.encode) | st.binary(max_size=20), max_size=6))
@settings(max_examples=80, deadline=None)
def test_any_events_are_read(api: Api, events: list[bytes]) -> None:
    reply = api.streamed({}, events)
    assert reply.problems or reply.error, "none of them is a whole stream"


@given(
    token=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40),
    around=st.text(max_size=20),
    depth=st.integers(0, 3),
)
@settings(max_examples=200, deadline=None)
def test_a_key_is_hidden_wherever_it_stands(token: str, around: str, depth: int) -> None:
    value: Any = f"{around}{token}{around}"
    for _ in range(depth):
        value = {"note": [value], value if isinstance(value, str) else "x": 1}
    redaction = Redaction(token)
    shown = json.dumps(redaction.document(value), ensure_ascii=False)
    written = redaction.body(json.dumps(json.dumps(value)).encode())
    for text in (shown, json.dumps(written, ensure_ascii=False)):
        assert token not in text.replace("\\\\", "\\").replace('\\"', '"')
    assert HIDDEN in shown


def test_what_looks_like_a_key_is_hidden_as_well() -> None:
    told = Redaction(None).short("Incorrect API key provided: sk-abcd1234**** and Bearer abc.def")
    assert told == f"Incorrect API key provided: {HIDDEN} and {HIDDEN}"


def run(script: Any, api: str) -> tuple[CheckResult, ...]:
    def answer(asked: Asked) -> Iterator[Step]:
        yield from script(asked)

    routes = {"/v1/messages": lambda asked: b"".join(s for s in script(asked) if s != RESET)}
    with running_server(answer, routes=routes) as server:
        return ended(server.url, api=api, check_s=2.0).results


DOCUMENTS: dict[str, Any] = {
    "nothing": b"",
    "no JSON": b"<html>It works</html>",
    "a list": [],
    "depth": b'{"choices": ' + b"[" * 900 + b"]" * 900 + b"}",
    "null": None,
    "a bare choice": {"choices": [{}]},
    "a choice that is text": {"choices": ["x"]},
    "a message of numbers": {"choices": [{"message": {"content": 7, "tool_calls": [7, {}]}}]},
    "negative usage": {"choices": [{"message": {}}], "usage": {"prompt_tokens": -1}},
    "logprobs of text": {"choices": [{"message": {"content": "42"}, "logprobs": {"content": "x"}}]},
    "blocks of text": {"content": ["x", {"type": "text", "text": 7}], "usage": []},
}


@pytest.mark.parametrize("api", ["chat", "messages"])
@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_an_endpoint_that_answers_everything_with_the_same_is_broken(
    api: str, document: Any
) -> None:
    def script(_: Asked) -> Iterator[Step]:
        yield plain(200, document, "Content-Type: application/json\r\n")

    assert any(result.breaks_contract for result in run(script, api))


@pytest.mark.parametrize(
    "bad",
    [
        b"data: " + b"x" * 5_000_000,
        b"data: {",
        b"data: []\n\n",
        event({"choices": [{"delta": 7}]}),
        b"\xff\xfe\n\n",
        b"",
    ],
    ids=["an event of 5 MB", "cut", "a list", "a number", "no text", "nothing"],
)
def test_streams_of_rubbish_are_broken(bad: bytes) -> None:
    def script(asked: Asked) -> Iterator[Step]:
        if asked.json.get("stream"):
            yield HEAD + (chunk(bad) if bad else b"") + END
        else:
            yield plain(200, {"choices": [{"message": {"content": "42"}}]})

    found = {result.id: result.verdict for result in run(script, "chat")}
    assert found["stream-shape"] is Verdict.FAILED


def test_an_error_that_is_null_is_none() -> None:
    chunks = [
        {"id": "c", "error": None, "choices": [{"delta": {"role": "assistant", "content": "42"}}]},
        {"id": "c", "error": None, "choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 1}},
    ]
    reply = ChatApi().streamed({}, [*(json.dumps(c).encode() for c in chunks), b"[DONE]"])
    assert (reply.error, reply.problems, reply.content) == (None, (), "42")


def test_a_stream_that_never_ends_ends_the_check() -> None:
    def script(asked: Asked) -> Iterator[Step]:
        if asked.number < 1:
            yield plain(200, {"choices": []})
            return
        yield HEAD
        while True:
            yield chunk(event({"choices": [{"delta": {"content": "x" * 60_000}}]}))

    with running_server(script) as server:
        (result,) = ended(server.url, only=["stream-shape"], check_s=20.0).results
    assert result.verdict is not Verdict.PASSED
    assert result.evidence[-1].status is None


def test_an_answer_that_drips_ends_the_check() -> None:
    def script(asked: Asked) -> Iterator[Step]:
        if asked.number < 1:
            yield plain(200, {"choices": []})
            return
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
        for _ in range(100):
            yield b"{"
            yield 0.05

    with running_server(script) as server:
        (result,) = ended(server.url, only=["answer-shape"], check_s=0.5).results
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "not done within" in result.detail


def test_a_connection_that_breaks_is_a_failure_with_its_kind() -> None:
    def script(asked: Asked) -> Iterator[Step]:
        if asked.number < 1:
            yield plain(200, {"choices": []})
        else:
            yield b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"
            yield RESET

    (first, *_) = run(script, "chat")
    assert first.verdict is Verdict.FAILED
    assert first.detail.startswith(("reset: ", "cut: "))
    assert first.evidence[-1].status is None
