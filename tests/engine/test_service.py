"""The service over HTTP, with answers from a script."""

import base64
import dataclasses
import http.client
import io
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from PIL import Image

from k31ctl.core.chat_format.prompt import last_opener, prompt_segments, read_chat_request
from k31ctl.engine.service.context import LEAST_TOKENS_OF_ELEMENT
from k31ctl.engine.service.limits import Limits
from k31ctl.engine.service.tasks import ServedModel
from tests.engine.scripted import (
    CONTEXT,
    FAILS,
    ScriptedGenerator,
    gauge,
    ids_of,
    served,
    small_model,
    wait_until,
)

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
THINK = "Rä<|close|>think<|sep|>"
RESPONSE = "<|open|>response<|sep|>A€ one two<|close|>response<|sep|>"
CALLS = (
    "<|open|>tools<|sep|>"
    '<|open|>call tool="f" index="1"<|sep|><|open|>argument key="x" type="number"<|sep|>1'
    "<|close|>argument<|sep|><|close|>call<|sep|>"
    '<|open|>call tool="g" index="2"<|sep|><|close|>call<|sep|>'
    "<|close|>tools<|sep|>"
)
END = "<|close|>message<|sep|><|end_of_msg|>"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    return small_model(tmp_path_factory.mktemp("checkpoint"))


class Served:
    """One service and what its generator has seen."""

    def __init__(self, url: str, model: ServedModel, generator: ScriptedGenerator) -> None:
        self.url, self.model, self.generator = url, model, generator

    def post(self, path: str = "/v1/chat/completions", **body: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=60)

    def chat(self, **body: Any) -> Any:
        response = self.post(**{"messages": HI, **body})
        assert response.status_code == 200, response.text
        return response.json()

    def stream(self, path: str = "/v1/chat/completions", **body: Any) -> list[dict[str, Any]]:
        response = self.post(path, **{"messages": HI, "stream": True, **body})
        assert response.headers["content-type"].startswith("text/event-stream")
        *events, done = response.text.removesuffix("\n\n").split("\n\n")
        assert done == "data: [DONE]"
        return [json.loads(event.removeprefix("data: ")) for event in events]


@pytest.fixture
def says(model: ServedModel, request: pytest.FixtureRequest) -> Iterator[Served]:
    """The service with a script: the parameter, or a whole ordinary answer."""
    spelt = getattr(request, "param", THINK + RESPONSE + END)
    generator = ScriptedGenerator(lambda _: ids_of(model.tokenizer, spelt))
    with served(model, generator) as url:
        yield Served(url, model, generator)


def deltas(events: list[dict[str, Any]], name: str) -> str:
    found = (event["choices"][0]["delta"].get(name) for event in events if event["choices"])
    return "".join(piece for piece in found if isinstance(piece, str))


def test_an_answer_has_its_reasoning_under_both_names(says: Served) -> None:
    answer = says.chat()
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"] == {
        "role": "assistant",
        "content": "A€ one two",
        "reasoning_content": "Rä",
        "reasoning": "Rä",
    }


def test_a_stream_says_the_same_in_the_documented_order(says: Served) -> None:
    events = says.stream(stream_options={"include_usage": True})
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert deltas(events, "reasoning_content") == deltas(events, "reasoning") == "Rä"
    assert deltas(events, "content") == "A€ one two"
    assert events[-2]["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == says.chat()["usage"]
    assert len({(event["id"], event["created"], event["model"]) for event in events}) == 1
    assert all(event["choices"][0]["delta"] for event in events[:-2])


def test_tokens_are_counted(says: Served) -> None:
    tokenizer, chat = says.model.tokenizer, read_chat_request({"messages": HI})
    opener = len(tokenizer.encode_prompt(last_opener(chat)))
    num_prompt = len(tokenizer.encode_prompt(prompt_segments(chat))) - opener
    num_made = len(ids_of(tokenizer, THINK + RESPONSE + END)) - 1  # close(message) ends it
    assert says.chat()["usage"] == {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_made,
        "total_tokens": num_prompt + num_made,
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


@pytest.mark.parametrize("says", [THINK + CALLS + END], indirect=True)
def test_tool_calls_come_whole_and_as_a_stream(says: Served) -> None:
    choice = says.chat(tools=[TOOL])["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    expected = [("f:0", "f", '{"x": 1}'), ("g:1", "g", "{}")]
    calls = choice["message"]["tool_calls"]
    named = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls]
    assert named == expected
    streamed: dict[int, list[str]] = {}
    for event in says.stream(tools=[TOOL]):
        for part in event["choices"][0]["delta"].get("tool_calls", ()):
            texts = streamed.setdefault(part["index"], ["", "", ""])
            function = part["function"]
            for place, text in enumerate(
                (part.get("id", ""), function.get("name", ""), function["arguments"])
            ):
                texts[place] += text
    assert [tuple(streamed[index]) for index in sorted(streamed)] == expected


@pytest.mark.parametrize("says", [THINK + CALLS + END], indirect=True)
def test_one_call_alone_where_no_parallel_ones_are_wanted(says: Served) -> None:
    choice = says.chat(tools=[TOOL], parallel_tool_calls=False)["choices"][0]
    assert [call["id"] for call in choice["message"]["tool_calls"]] == ["f:0"]
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("says", [THINK + CALLS + END], indirect=True)
def test_what_was_answered_can_be_sent_back(says: Served) -> None:
    message = says.chat(tools=[TOOL])["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "x"}
        for call in reversed(message["tool_calls"])
    ]
    choice = says.chat(messages=[*HI, message, *results], tools=[TOOL])["choices"][0]
    assert [call["id"] for call in choice["message"]["tool_calls"]] == ["f:2", "g:3"]
    prompt = bytes(b for i in says.generator.seen[-1].prompt_ids
                   for b in says.model.tokenizer.bytes_of(i)).decode()  # fmt: skip
    assert f"<|open|>think<|sep|>{THINK}" in prompt
    assert CALLS in prompt
    assert prompt.index('tool="f" index="1"<|sep|>x') < prompt.index('tool="g" index="2"<|sep|>x')


@pytest.mark.parametrize("says", ["A<|close|>response<|sep|>" + END], indirect=True)
def test_a_skipped_channel_loses_no_answer(says: Served) -> None:
    message = says.chat()["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("A", None)
    assert deltas(says.stream(), "content") == "A"


def test_a_stop_string_ends_the_answer_and_never_the_reasoning(says: Served) -> None:
    choice = says.chat(stop=["R", " two"])["choices"][0]
    assert (choice["message"]["content"], choice["message"]["reasoning"]) == ("A€ one", "Rä")
    assert choice["finish_reason"] == "stop"
    assert deltas(says.stream(stop=" two"), "content") == "A€ one"


def test_a_cut_answer_says_so(says: Served) -> None:
    choice = says.chat(max_tokens=2)["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["reasoning"] == "R�"


def test_probabilities_belong_to_the_answer_s_tokens(says: Served) -> None:
    entries = says.chat(logprobs=True, top_logprobs=1)["choices"][0]["logprobs"]["content"]
    assert bytes(b for entry in entries for b in entry["bytes"]).decode() == "A€ one two"
    streamed = [
        entry
        for event in says.stream(logprobs=True, top_logprobs=1)
        for entry in (event["choices"][0].get("logprobs") or {"content": ()})["content"]
    ]
    assert streamed == entries


@pytest.mark.parametrize("says", ["plain <text>"], indirect=True)
def test_a_completion_is_the_text_behind_the_prompt(says: Served) -> None:
    answer = says.post("/v1/completions", prompt="Once", logprobs=0).json()
    assert answer["choices"][0]["text"] == "plain <text>"
    assert "".join(answer["choices"][0]["logprobs"]["tokens"]) == "plain <text>"
    assert answer["usage"]["prompt_tokens"] == len(says.model.tokenizer.encode_text("Once"))
    events = says.stream("/v1/completions", prompt=[1, 2])
    assert "".join(event["choices"][0]["text"] for event in events) == "plain <text>"
    assert says.generator.seen[-1].prompt_ids == (1, 2)


def data_url(width: int, height: int, **save: Any) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(file, **{"format": "PNG", **save})
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def with_image(url: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


def test_an_image_comes_to_the_model_and_costs_its_tokens(says: Served) -> None:
    says.chat(messages=with_image(data_url(512, 512)))
    work = says.generator.seen[-1]
    assert work.prompt_ids.count(says.model.tokenizer.media_pad or -1) == 361
    assert len(work.images[0].rgb) == 532 * 532 * 3


def test_ids_of_a_prompt_can_be_asked_for(says: Served) -> None:
    found = says.post("/tokenize", messages=HI).json()
    says.chat()
    assert tuple(found["tokens"]) == says.generator.seen[-1].prompt_ids
    assert (found["count"], found["max_model_len"]) == (len(found["tokens"]), CONTEXT)
    assert says.post("/tokenize", prompt="<|sep|>").json()["count"] > 1


def test_what_is_served_is_listed(says: Served) -> None:
    listed = httpx.get(says.url + "/v1/models").json()["data"]
    assert [entry["id"] for entry in listed] == ["tiny"]
    assert httpx.get(says.url + "/v1/models/tiny").json() == listed[0]
    assert httpx.get(says.url + "/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"messages": HI, "model": "other"}, 404, "model"),
        ({"messages": []}, 400, "messages"),
        ({"messages": HI, "reasoning_effort": "medium"}, 400, "reasoning_effort"),
        ({"messages": HI, "temperature": "hot"}, 400, "temperature"),
        ({"messages": HI, "temperature": 10**400}, 400, "temperature"),
        ({"messages": HI, "max_tokens": 0}, 400, "max_tokens"),
        ({"messages": HI, "n": 2}, 400, "n"),
        ({"messages": HI, "top_logprobs": 21}, 400, "top_logprobs"),
        ({"messages": HI, "stop": [""]}, 400, "stop[0]"),
        ({"messages": HI, "stream": "yes"}, 400, "stream"),
        ({"messages": HI, "tool_choice": "required"}, 400, "tool_choice"),
        ({"messages": with_image("http://localhost/x.png")}, 400, "messages[0].content[0]"),
        ({"messages": with_image("data:image/png;base64,AAAA")}, 400, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": "a" * 9000}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": "a" * 900_000}]}, 400, "messages"),
    ],
)
def test_a_bad_request_is_told_which_field(
    says: Served, body: dict[str, Any], status: int, param: str
) -> None:
    response = says.post(**body)
    assert response.status_code == status
    error = response.json()["error"]
    assert error["param"] == param
    assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": [""]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1] * CONTEXT}, "prompt"),
        ({"prompt": "a" * 900_000}, "prompt"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
    ],
)
def test_a_bad_completion_is_told_which_field(
    says: Served, body: dict[str, Any], param: str
) -> None:
    response = says.post("/v1/completions", **body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


CALL = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
WIDE_CALL = {"function": {"name": "f", "arguments": {str(n): n for n in range(1400)}}}
EMPTY_PART = {"type": "text", "text": ""}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
@pytest.mark.parametrize(
    ("body", "at_least"),
    [
        ({"messages": [{"role": "user", "content": ""}] * 20_000}, 120_000),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL] * 1400}]}, 8406),
        ({"messages": [{"role": "assistant", "tool_calls": [WIDE_CALL]}]}, 8400),
        ({"messages": [{"role": "user", "content": [EMPTY_PART] * 8200}]}, 8206),
        ({"messages": HI, "tools": [TOOL] * 8200}, 8206),
    ],
)
def test_what_is_too_much_by_its_number_is_refused_before_it_is_built(
    says: Served, path: str, body: dict[str, Any], at_least: int
) -> None:
    error = says.post(path, **body).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert f"at least {at_least:,} tokens" in error["message"]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": ""},
        {"role": "tool", "name": "f", "content": ""},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
    ],
)
def test_no_message_is_counted_for_more_than_it_takes(
    says: Served, message: dict[str, Any]
) -> None:
    def counted(number: int) -> int:
        return int(says.post("/tokenize", messages=[message] * number).json()["count"])

    elements = 1 + len(message.get("tool_calls", ()))
    assert counted(3) - counted(2) >= LEAST_TOKENS_OF_ELEMENT * elements


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"content": b"{"}, 400),
        ({"content": b"[]"}, 400),
        ({"content": b"\xff"}, 400),
        ({"content": b"[" * 100_000}, 400),
        ({"content": b'{"messages":' + b"[" * 900 + b"]" * 900 + b"}"}, 400),
        ({"content": b'{"seed": ' + b"9" * 5000 + b"}"}, 400),
        ({"content": b"{}", "headers": {"Content-Type": "text/plain"}}, 415),
        ({"content": b"x" * 2_000_000}, 413),
    ],
)
def test_a_malformed_body_is_refused(model: ServedModel, sent: dict[str, Any], status: int) -> None:
    limits = Limits(max_body_bytes=1_000_000)
    sent = {"headers": {"Content-Type": "application/json"}, **sent}
    with served(model, ScriptedGenerator(lambda _: ()), limits=limits) as url:
        response = httpx.post(url + "/v1/chat/completions", **sent)
        assert response.status_code == status
        assert response.json()["error"]["message"]
        assert httpx.get(url + "/health").status_code == 200


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
def test_a_body_that_is_too_large_is_read_on_so_that_the_answer_is_seen(
    model: ServedModel, connection: str
) -> None:
    limits = Limits(max_body_bytes=4_000_000)
    headers = {"Content-Type": "application/json", "Connection": connection}
    with served(model, ScriptedGenerator(lambda _: ()), limits=limits) as url:
        client = http.client.HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]), timeout=60)
        client.request("POST", "/v1/completions", body=b" " * 16_000_000, headers=headers)
        response = client.getresponse()
        assert response.status == 413
        assert "4,000,000 bytes" in json.loads(response.read())["error"]["message"]
        client.request("POST", "/tokenize", body=b'{"prompt": "a"}', headers=headers)
        assert client.getresponse().status == 200
        client.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01garbage\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_what_is_no_http_is_answered_in_the_form_of_other_errors(says: Served, sent: bytes) -> None:
    port = int(says.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(sent)
        answer = client.makefile("rb").read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/json" in head
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert httpx.get(says.url + "/health").status_code == 200


def test_what_is_not_offered_is_said_in_the_same_form(says: Served) -> None:
    assert httpx.get(says.url + "/v2").json()["error"]["type"] == "not_found_error"
    assert httpx.get(says.url + "/v1/completions").status_code == 405
    assert says.post("/v1/completions/").json()["error"]["type"] == "not_found_error"


def test_a_key_is_asked_for_where_there_is_one(model: ServedModel) -> None:
    with served(model, ScriptedGenerator(lambda _: ()), api_key="secret") as url:
        assert httpx.get(url + "/v1/models").status_code == 401
        wrong = {b"Authorization": "Bearer s\xe9cret".encode("latin-1")}
        assert httpx.get(url + "/v1/models", headers=wrong).status_code == 401
        for scheme in ("Bearer", "bearer", "BEARER"):
            right = {"Authorization": f"{scheme} secret"}
            assert httpx.get(url + "/v1/models", headers=right).status_code == 200
        for other in ("Basic secret", "secret", "Bearer", "bearer Secret"):
            refused = httpx.get(url + "/v1/models", headers={"Authorization": other})
            assert refused.status_code == 401
        assert httpx.get(url + "/health").status_code == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_failing_model_fails_one_request(model: ServedModel, path: str) -> None:
    script = [*ids_of(model.tokenizer, "R"), FAILS]
    generator = ScriptedGenerator(lambda _: script)
    with served(model, generator) as url:
        says = Served(url, model, generator)
        assert says.post(path, messages=HI, prompt="a").status_code == 500
        *_, last = says.stream(path, prompt="a")
        assert last["error"]["type"] == "server_error"
        assert gauge(url, "num_requests_open") == 0


def test_an_answer_that_takes_too_long_is_ended(model: ServedModel) -> None:
    generator = ScriptedGenerator(lambda _: [65] * 1000, pause_s=0.05)
    with served(model, generator, limits=Limits(request_s=0.2)) as url:
        assert Served(url, model, generator).post(messages=HI).status_code == 504
        assert gauge(url, "num_requests_running") == 0


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_client_that_hangs_up_frees_its_place(model: ServedModel, is_streamed: bool) -> None:
    generator = ScriptedGenerator(lambda _: [65] * 8000, num_slots=1, pause_s=0.01)
    body = {"messages": HI, "stream": is_streamed}
    with served(model, generator) as url, httpx.Client() as client:
        request = client.build_request("POST", url + "/v1/chat/completions", json=body)
        if is_streamed:
            response = client.send(request, stream=True)
            next(response.iter_bytes())
            response.close()
        else:
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(url + "/v1/chat/completions", json=body, timeout=0.2)
        wait_until(lambda: gauge(url, "num_requests_open") == 0)
        assert gauge(url, "num_requests_running") == gauge(url, "kv_cached_tokens") == 0
        assert generator.num_generated < 8000


def test_a_client_that_does_not_read_is_given_up(model: ServedModel) -> None:
    generator = ScriptedGenerator(lambda _: [65] * 100_000, num_slots=1)
    wide = dataclasses.replace(model, max_model_tokens=200_000)
    body = json.dumps({"messages": HI, "stream": True, "logprobs": True}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    with served(wide, generator, limits=Limits(stall_s=0.2)) as url, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: generator.num_generated > 0)
        wait_until(lambda: gauge(url, "num_requests_open") == 0)
        assert gauge(url, "num_requests_running") == 0
    assert generator.num_generated < 100_000


def test_more_requests_than_allowed_are_turned_away(model: ServedModel) -> None:
    generator = ScriptedGenerator(lambda _: [65] * 8000, pause_s=0.01)
    body = {"messages": HI, "stream": True}
    with served(model, generator, limits=Limits(max_requests=1)) as url:
        with httpx.stream("POST", url + "/v1/chat/completions", json=body):
            second = httpx.post(url + "/v1/chat/completions", json=body)
        assert second.status_code == 503
        assert second.headers["retry-after"] == "1"


def test_a_slow_body_is_given_up(model: ServedModel) -> None:
    def slow() -> Iterator[bytes]:
        yield b"{"
        wait_until(lambda: gauge(url, 'http_requests_total{path="/tokenize",status="408"}') == 1)

    with served(model, ScriptedGenerator(lambda _: ()), limits=Limits(body_s=0.1)) as url:
        headers = {"Content-Type": "application/json"}
        response = httpx.post(url + "/tokenize", content=slow(), headers=headers)
        assert response.status_code == 408


def test_dropped_reasoning_is_warned_about(says: Served) -> None:
    messages = [*HI, {"role": "assistant", "content": "A"}, *HI]
    assert "reasoning_content" in says.post(messages=messages).headers["X-K31ctl-Warning"]
    assert "X-K31ctl-Warning" not in says.post(messages=HI).headers


@pytest.mark.parametrize("says", [THINK + RESPONSE + CALLS + END], indirect=True)
def test_answers_are_as_the_description_says(says: Served) -> None:
    document = httpx.get(says.url + "/openapi.json").json()
    schema = {"$ref": "#/components/schemas/ChatAnswer", **document}
    jsonschema.validate(says.chat(tools=[TOOL], logprobs=True), schema)
    schema = {"$ref": "#/components/schemas/CompletionAnswer", **document}
    jsonschema.validate(says.post("/v1/completions", prompt="x").json(), schema)
    paths = {path for path in document["paths"] if "{" not in path}
    assert {httpx.options(says.url + path).status_code for path in paths} == {405}
