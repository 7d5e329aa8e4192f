"""Prompts against cases that two independent renderers agree on, and rules beyond them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.chat_format.prompt import prompt_segments, read_chat_request
from k31ctl.core.chat_format.segments import Segment, escaped, unescaped
from k31ctl.errors import InputError

CASES = sorted((Path(__file__).parents[2] / "data" / "chat").glob("*.json"))
HI = {"role": "user", "content": "Hi"}


def segments(body: dict[str, Any]) -> tuple[Segment, ...]:
    return prompt_segments(read_chat_request(body))


def text(body: dict[str, Any]) -> str:
    return "".join(segment.text for segment in segments(body))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_prompt_is_rendered_as_the_model_s_own_encoder_does(path: Path) -> None:
    case = json.loads(path.read_text())
    request = read_chat_request(case["request"])
    sizes = [tuple(image["size"]) for image in case.get("images", [])]
    found = prompt_segments(request, image_sizes=sizes)
    assert [list(segment) for segment in found] == case["segments"]
    assert "".join(segment.text for segment in found) == case["rendered"]
    assert (request.is_thinking, request.effort) == (case["thinking"], case["thinking_effort"])


def answered(arguments: object, *results: dict[str, Any]) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    calls = [{"id": "a", "function": function}, {"id": "b", "function": {"name": "g"}}]
    return {"messages": [HI, {"role": "assistant", "tool_calls": calls}, *results]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": 1e2}', 'key="a" type="number"<|sep|>100.0<'),
        ('{"a": true}', 'key="a" type="boolean"<|sep|>true<'),
        ('{"a": null}', 'key="a" type="null"<|sep|>null<'),
        ('{"a": NaN}', 'key="a" type="number"<|sep|>NaN<'),
        ('{"a": "\\"ü\\" "}', 'key="a" type="string"<|sep|>"ü" <'),
        ({"a": {"b": [1, "é"]}}, 'key="a" type="object"<|sep|>{"b": [1, "é"]}<'),
        ('{"a": [1,2]}', 'key="a" type="array"<|sep|>[1, 2]<'),
        ('{"z": 1, "a": 2}', 'key="z" type="number"<|sep|>1<|close|>argument<|sep|><|open|>arg'),
        ('{"_p\\"&": 1}', 'key="_p&quot;&amp;" type='),
        ("not json", '<|open|>json type="object"<|sep|>not json<|close|>json<|sep|>'),
        (" ", 'tool="f" index="1"<|sep|><|close|>call<|sep|>'),
        (None, 'tool="f" index="1"<|sep|><|close|>call<|sep|>'),
    ],
)
def test_arguments_carry_their_types(arguments: object, expected: str) -> None:
    assert expected in text(answered(arguments))


def test_results_without_a_match_stay_in_their_order() -> None:
    results = [{"role": "tool", "tool_call_id": i, "content": i} for i in ("b", "unknown")]
    found = text(answered("", *results))
    assert 'tool="f" index="1"<|sep|>b<' in found
    assert 'tool="g" index="2"<|sep|>unknown<' in found


def test_a_matched_result_takes_the_name_of_its_call() -> None:
    result = {"role": "tool", "tool_call_id": "b", "name": "stale", "content": "x"}
    assert 'role="tool" tool="g" index="1"' in text(answered("", result))


@pytest.mark.parametrize("names", [{"name": ""}, {"tool": "", "name": ""}, {"tool": None}])
def test_a_result_without_id_and_name_takes_the_name_of_the_call_at_its_place(
    names: dict[str, str | None],
) -> None:
    first, second = {"role": "tool", "content": "x", **names}, {"role": "tool", "content": "y"}
    found = text(answered("", first, second))
    assert 'tool="f" index="1"<|sep|>x<' in found
    assert 'tool="g" index="2"<|sep|>y<' in found


def test_an_empty_tool_yields_to_the_name_of_a_result() -> None:
    result = {"role": "tool", "tool": "", "name": "own", "content": "x"}
    assert 'tool="own" index="1"<|sep|>x<' in text(answered("", result))


def test_an_earlier_answer_without_reasoning_keeps_its_empty_channel() -> None:
    messages = [HI, {"role": "assistant", "content": "A", "reasoning_content": " \n"}, HI]
    assert "<|open|>think<|sep|><|close|>think<|sep|>" in text({"messages": messages})


def test_reasoning_is_read_under_both_names() -> None:
    answer = {"role": "assistant", "content": None, "reasoning_content": "", "reasoning": " why "}
    assert "<|sep|> why <|close|>" in text({"messages": [HI, answer]})


def test_a_developer_s_message_is_a_system_message() -> None:
    found = text({"messages": [{"role": "developer", "content": "Be brief."}]})
    assert '<|open|>message role="system"<|sep|>Be brief.<' in found


def test_a_typed_image_placeholder_takes_no_image_s_place() -> None:
    content = [{"type": "text", "text": "<|kimi_image_placeholder|>"}, {"type": "image_url"}]
    request = read_chat_request({"messages": [{"role": "user", "content": content}]})
    found = prompt_segments(request, image_sizes=[(10, 20)])
    assert Segment("<|kimi_image_placeholder|>", False) in found
    assert sum("<|media_pad|>" in segment.text for segment in found if segment.is_special) == 1


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "messages"),
        ({"messages": [{"role": "robot"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "video_url"}]}]}, "content[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]"),
        (answered("[1]"), "messages[1].tool_calls[0].function.arguments"),
        ({"messages": [HI], "reasoning_effort": "medium"}, "reasoning_effort"),
        ({"messages": [HI], "tool_choice": "any"}, "tool_choice"),
        ({"messages": [HI], "response_format": {"type": "xml"}}, "response_format.type"),
        ({"messages": [HI], "tools": [{"type": "function"}]}, "tools[0].function"),
    ],
)
def test_a_bad_request_is_refused_by_the_name_of_its_field(
    body: dict[str, Any], where: str
) -> None:
    with pytest.raises(InputError) as refused:
        segments(body)
    assert where in refused.value.where


@given(st.text(), st.text())
def test_what_a_user_types_is_never_special(name: str, content: str) -> None:
    message = {"role": "user", "name": name, "content": content}
    quiet = {"messages": [{"role": "user", "name": "n", "content": "c"}]}
    special = [s for s in segments({"messages": [message | {"name": name or "n"}]}) if s.is_special]
    assert special == [s for s in segments(quiet) if s.is_special]


@given(st.text())
def test_escaping_can_be_undone(value: str) -> None:
    assert unescaped(escaped(value)) == value
