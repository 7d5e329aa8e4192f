"""A server that misbehaves is bounded, counted by kind, and never waited for past the timeout."""

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from k31ctl.bench.deltas import Part
from k31ctl.bench.result import StageResult
from tests.bench.runs import measured
from tests.bench.sse_server import (
    CLOSE,
    DONE,
    END,
    HEAD,
    RESET,
    Asked,
    Script,
    Step,
    answer,
    chunk,
    delta,
    event,
    plain,
    running_server,
    stream_of,
    usage,
)

TOKEN = chunk(event(delta(content=" tok")))


def run(script: Script, **asked: Any) -> StageResult:
    with running_server(script) as server:
        return measured(server.url, **asked)


def steps(*found: Step) -> Script:
    return lambda _: iter(found)


def test_reasoning_counts_as_the_first_token_under_either_name() -> None:
    for name in ("reasoning", "reasoning_content"):
        script = steps(
            HEAD,
            chunk(event(delta(role="assistant", content=""))),
            chunk(event(delta(**{name: "hm"}))),
            0.1,
            TOKEN,
            chunk(event(delta(finish="stop"))),
            chunk(event(usage(5, 2, completion_tokens_details={"reasoning_tokens": 1}))),
            chunk(DONE) + END,
        )
        found = run(script)
        assert found.errors == 0
        assert found.ttft_s and found.ttft_reasoning_s and found.ttft_answer_s
        assert found.ttft_s.max == found.ttft_reasoning_s.max
        assert found.ttft_answer_s.max > found.ttft_s.max + 0.05
        assert found.tokens.reasoning == 1


def test_tokens_that_come_several_in_an_event_are_told_apart_from_events() -> None:
    def four(_: Asked) -> Iterator[Step]:
        yield HEAD
        for _number in range(5):
            yield chunk(event(delta(content=" a b c d")))
            yield 0.04
        yield chunk(event(delta(finish="stop"))) + chunk(event(usage(5, 20))) + END

    found = run(four, output_tokens=20)
    assert (found.tokens.events, found.tokens.output) == (5, 20)
    assert found.itl_s and found.itl_token_s and found.tpot_s
    assert found.itl_token_s.p50 == pytest.approx(found.itl_s.p50 / 4, rel=1e-5)
    assert found.tpot_s.mean == pytest.approx(found.itl_s.mean * 4 / 19, rel=1e-3)


def test_tool_calls_count_as_the_answer() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": "{}"}}
    found = run(
        lambda _: stream_of(
            delta(tool_calls=[call]), delta(tool_calls=[more]), delta(finish="tool_calls")
        )
    )
    assert (found.errors, found.tokens.events) == (0, 2)
    assert found.ttft_answer_s is not None


def test_comments_split_letters_and_split_events_are_read() -> None:
    letters = json.dumps(delta(content="déjà 🦊"), ensure_ascii=False).encode()
    wire = b": ping\n\ndata: " + letters + b"\r\n\r\n" + event(delta(finish="stop")) + DONE
    pieces = [chunk(wire[at : at + 1]) for at in range(len(wire))]
    found = run(steps(HEAD, chunk(b": ping\n\n"), *pieces, END))
    assert (found.errors, found.tokens.events, found.num_comments) == (0, 1, 2)


def test_a_gzipped_stream_is_read_as_it_comes() -> None:
    packer = zlib.compressobj(wbits=31)

    def zipped(data: bytes) -> bytes:
        return chunk(packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))

    head = HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n"
    end = event(delta(finish="stop"))

    def pieces(_: Asked) -> Iterator[Step]:
        yield head
        yield zipped(event(delta(content="a")))
        yield 0.1
        yield zipped(event(delta(content="b")) + end)
        yield chunk(packer.flush()) + END

    found = run(pieces)
    assert (found.errors, found.tokens.events) == (0, 2)
    assert found.itl_s and found.itl_s.max > 0.05


def test_an_answer_that_is_no_stream_counts_as_one_event() -> None:
    document = {
        "choices": [{"message": {"content": "all of it"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    packed = gzip.compress(json.dumps(document).encode())
    found = run(steps(plain(200, packed, "Content-Encoding: gzip\r\n")))
    assert (found.errors, found.tokens.events, found.tokens.output) == (0, 1, 4)


def test_a_stream_without_done_counts_where_it_said_why_it_ended() -> None:
    found = run(lambda _: stream_of(delta(content="a"), delta(finish="stop"), done=False))
    assert (found.errors, found.num_without_done) == (0, 1)


def test_an_end_of_the_connection_after_done_is_an_end() -> None:
    found = run(steps(HEAD, TOKEN, chunk(event(delta(finish="stop"))), chunk(DONE), CLOSE))
    assert found.errors == 0


def test_done_is_the_end_though_the_body_never_ends() -> None:
    found = run(steps(HEAD, TOKEN, chunk(event(delta(finish="stop"))), chunk(DONE), 20.0))
    assert (found.errors, found.completed) == (0, 1)
    assert found.duration_s < 10


def test_without_usage_events_are_counted_and_it_is_told() -> None:
    found = run(lambda _: stream_of(delta(content="a"), delta(content="b"), delta(finish="stop")))
    assert (found.tokens.output, found.tokens.output_source) == (2, "events")
    assert found.tokens.num_without_usage == 1


@pytest.mark.parametrize("told", [1, 5])
def test_usage_that_cannot_be_is_told(told: int) -> None:
    # Two events that carry tokens, four tokens asked for: neither one nor five can be.
    found = run(
        lambda _: stream_of(
            delta(content="a"), delta(content="b"), delta(finish="stop"), usage(1, told)
        )
    )
    assert (found.tokens.output, found.tokens.num_disagreeing) == (told, 1)


def test_a_redirection_says_where_to() -> None:
    found = run(steps(plain(307, {}, "Location: https://elsewhere.invalid/v1\r\n")))
    assert dict(found.errors_by_kind) == {"http_307": 1}
    assert "https://elsewhere.invalid/v1" in found.error_details["http_307"]


LONG = b"data: " + b"x" * 2**20


def trickle(_: Asked) -> Iterator[Step]:
    yield HEAD + TOKEN
    while True:
        yield b"1\r\n:\r\n"
        yield 0.02


def endless(_: Asked) -> Iterator[Step]:
    yield HEAD
    while True:
        yield TOKEN * 100


def giant(_: Asked) -> Iterator[Step]:
    yield HEAD
    while True:
        yield chunk(LONG)


def head_without_end(_: Asked) -> Iterator[Step]:
    yield b"HTTP/1.1 200 OK\r\n"
    while True:
        yield b"X-Filler: " + b"y" * 1000 + b"\r\n"


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (steps(plain(503, b"busy")), "http_503"),
        (steps(plain(429, {"error": "slow down"}, "Retry-After: 0\r\n")), "http_429"),
        (steps(HEAD, TOKEN, CLOSE), "cut"),
        (steps(HEAD + TOKEN, 0.05, RESET), "reset"),
        (steps(CLOSE), "cut"),
        (steps(HEAD, TOKEN, chunk(DONE)[:5], CLOSE), "cut"),
        (lambda _: stream_of(delta(content="a"), done=False), "cut"),
        (lambda _: stream_of(delta(role="assistant"), delta(finish="stop")), "no_tokens"),
        (lambda _: stream_of(delta(content="a"), {"error": {"message": "oom"}}), "error_event"),
        (lambda _: stream_of(delta(content="a"), "{nonsense"), "bad_json"),
        (lambda _: stream_of("[1, 2]"), "bad_json"),
        (lambda _: stream_of({"choices": [7]}), "bad_json"),
        (lambda _: stream_of({"choices": [{"delta": []}]}), "bad_json"),
        (lambda _: stream_of(delta(tool_calls=[1])), "bad_json"),
        (lambda _: stream_of(delta(content="a"), usage(1, -5)), "bad_usage"),
        (lambda _: stream_of(delta(content="a"), usage(1, 10**30)), "bad_usage"),
        (lambda _: stream_of(delta(content="a"), {"choices": [], "usage": [1]}), "bad_usage"),
        (lambda _: stream_of("[" * 100_000), "bad_json"),
        (steps(b"SSH-2.0-x\r\n", 0.2), "bad_http"),
        (steps(HEAD, b"nonsense\r\n", 0.2), "bad_http"),
        (endless, "endless"),
        (giant, "oversized"),
        (head_without_end, "oversized"),
    ],
)
def test_every_misbehaviour_has_its_kind(script: Script, kind: str) -> None:
    found = run(script)
    assert dict(found.errors_by_kind) == {kind: 1}
    assert (found.completed, found.errors, found.ttft_s) == (0, 1, None)


@pytest.mark.parametrize(
    ("script", "kind", "limits"),
    [
        (steps(HEAD, 30.0), "timeout", {"timeout_s": 0.3}),
        (steps(30.0), "timeout", {"timeout_s": 0.3}),
        (steps(HEAD, TOKEN, 30.0), "gap_timeout", {"gap_timeout_s": 0.3}),
        (trickle, "gap_timeout", {"gap_timeout_s": 0.3}),
        (trickle, "timeout", {"timeout_s": 0.3}),
    ],
)
def test_silence_and_trickles_end_at_the_timeout(
    script: Script, kind: str, limits: dict[str, float]
) -> None:
    found = run(script, **limits)
    assert dict(found.errors_by_kind) == {kind: 1}
    assert found.duration_s < 10


def test_failures_are_counted_apart_and_do_not_touch_latencies() -> None:
    def some(asked: Asked) -> Iterator[Step]:
        if asked.number % 10 == 9:
            return iter([plain(503, b"busy")])
        if asked.number % 10 == 4:
            return iter([HEAD, TOKEN, CLOSE])
        return answer(asked)

    found = run(some, num_requests=40, concurrency=(4,))
    assert (found.requests, found.completed, found.errors) == (40, 32, 8)
    assert dict(found.errors_by_kind) == {"cut": 4, "http_503": 4}
    assert found.tokens.output == 32 * 4


def test_a_connection_that_the_server_let_go_is_no_failure() -> None:
    def closing(asked: Asked) -> Iterator[Step]:
        yield from answer(asked)
        yield CLOSE

    found = run(closing, num_requests=20)
    assert (found.completed, found.errors) == (20, 0)


def test_a_user_waits_as_long_as_retry_after_says() -> None:
    def once(asked: Asked) -> Iterator[Step]:
        busy = plain(429, b"", "Retry-After: 1\r\n")
        return iter([busy]) if asked.number == 0 else answer(asked)

    found = run(once, num_requests=2)
    assert (found.completed, found.errors) == (1, 1)
    assert found.duration_s >= 1


def test_sessions_give_back_answer_reasoning_and_tool_calls() -> None:
    call = {"index": 0, "id": "call_a", "function": {"name": "look", "arguments": '{"x":1}'}}

    def talk(asked: Asked) -> Iterator[Step]:
        documents = [delta(reasoning="hm"), delta(content="so")]
        if asked.number == 0:
            documents.append(delta(tool_calls=[call]))
        return stream_of(*documents, delta(finish="stop"))

    with running_server(talk) as server:
        found = measured(server.url, num_requests=3, num_turns=3)
    said = [asked.json["messages"] for asked in server.completions()]
    assert found.errors == 0
    assert [m["role"] for m in said[1]] == ["user", "assistant", "tool"]
    assert said[1][1] == {
        "role": "assistant",
        "content": "so",
        "reasoning": "hm",
        "tool_calls": [
            {
                "id": "call_a",
                "type": "function",
                "function": {"name": "look", "arguments": '{"x":1}'},
            }
        ],
    }
    assert said[1][2]["tool_call_id"] == "call_a"
    assert [m["role"] for m in said[2]] == [*("user", "assistant", "tool", "assistant"), "user"]
    assert said[2][:3] == said[1]
    assert Part.REASONING.value in said[2][3]
