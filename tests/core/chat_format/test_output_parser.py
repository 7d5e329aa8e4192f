"""Output of models, well formed and mangled in every way that was reported."""

import json
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.chat_format.answer import Answer, whole_answer
from k31ctl.core.chat_format.output_parser import (
    Call,
    Event,
    Marker,
    OutputParser,
    Reasoning,
    ReasoningWasContent,
)
from k31ctl.core.chat_format.prompt import prompt_segments, read_chat_request

O, C, S, E = Marker.OPEN, Marker.CLOSE, Marker.SEPARATOR, Marker.END_OF_MESSAGE  # noqa: E741
SPELT = {"<|open|>": O, "<|close|>": C, "<|sep|>": S, "<|end_of_msg|>": E}
Pieces = Sequence[Marker | str]

END_RESPONSE: Pieces = (C, "response", S)
END: Pieces = (C, "message", S, E)
THINK_R: Pieces = ("R", C, "think", S)
RESPONSE_A: Pieces = (O, "response", S, "A", *END_RESPONSE)
ARGUMENT: Pieces = (O, 'argument key="x" type="number"', S, "1", C, "argument", S)
JSON_B: Pieces = (O, 'json type="object"', S, '{"b":2}', C, "json", S)
TOOLS: Pieces = (O, "tools", S)
END_TOOLS: Pieces = (C, "tools", S)


def call(name: str, *inside: Marker | str) -> Pieces:
    return (O, f'call tool="{name}" index="1"', S, *inside, C, "call", S)


def argument(key: str, kind: str, value: str) -> Pieces:
    return (O, f'argument key="{key}" type="{kind}"', S, value, C, "argument", S)


def events(pieces: Iterable[Marker | str], *, is_thinking: bool = True) -> list[Event]:
    parser = OutputParser(is_thinking=is_thinking)
    found = [event for piece in pieces for event in parser.feed(piece)]
    return [*found, *parser.finish()]


def answer(*pieces: Marker | str, is_thinking: bool = True) -> Answer:
    return whole_answer(events(pieces, is_thinking=is_thinking))


F1 = Call("f", '{"x": 1}')
SHAPES: dict[str, tuple[Pieces, tuple[str, str, tuple[Call, ...]]]] = {
    "normal": ((*THINK_R, *RESPONSE_A, *END), ("R", "A", ())),
    "tools after response": (
        (*THINK_R, *RESPONSE_A, *TOOLS, *call("f", *ARGUMENT), *END_TOOLS, *END),
        ("R", "A", (F1,)),
    ),
    "parallel": (
        (*THINK_R, *TOOLS, *call("f", *ARGUMENT), *call("g"), *END_TOOLS, *END),
        ("R", "", (F1, Call("g", "{}"))),
    ),
    "empty think": ((C, "think", S, *RESPONSE_A, *END), ("", "A", ())),
    "cut in think": (("R",), ("R", "", ())),
    "end of message in think": (("R", E, "more"), ("R", "", ())),
    "bad number": (
        (*TOOLS, *call("f", O, 'argument key="x" type="number"', S, "1x", C, "argument", S), *END),
        ("", "", (Call("f", '{"x": "1x"}'),)),
    ),
    "infinite number": (
        (*TOOLS, *call("f", O, 'argument key="x" type="number"', S, "1e999", C, "argument", S)),
        ("", "", (Call("f", '{"x": "1e999"}'),)),
    ),
    "escaped attributes": (
        (*TOOLS, *call("a&quot;&amp;quot;"), *END),
        ("", "", (Call('a"&quot;', "{}"),)),
    ),
    "tools after an unclosed response": (
        (*THINK_R, O, "response", S, "A", *TOOLS, *call("g"), *END_TOOLS, *END),
        ("R", "A", (Call("g", "{}"),)),
    ),
    "unclosed think, then tools": (
        ("R", *TOOLS, *call("f", *ARGUMENT), *END_TOOLS, *END),
        ("R", "", (F1,)),
    ),
    "unclosed think, then response": (("R", *RESPONSE_A, *END), ("R", "A", ())),
    "separator left out of close(think)": (
        ("R", C, "think", O, "response", S, "A", *END_RESPONSE, *END),
        ("R", "A", ()),
    ),
    "think skipped": (("A", *END_RESPONSE, *END), ("", "A", ())),
    "think skipped, then tools": (
        ("A", *END_RESPONSE, *TOOLS, *call("g"), *END),
        ("", "A", (Call("g", "{}"),)),
    ),
    "unclosed response": ((*THINK_R, O, "response", S, "A", *END), ("R", "A", ())),
    "cut in a marker": ((*THINK_R, O, "response", S, "A", C, "resp"), ("R", "A", ())),
    "fragment before the end": ((*THINK_R, O, "response", S, "A", C, "resp", E), ("R", "A", ())),
    "cut inside a second call": (
        (*THINK_R, *TOOLS, *call("f", *ARGUMENT), O, 'call tool="g"', S, *ARGUMENT),
        ("R", "", (F1,)),
    ),
    "json in a call": (
        (*TOOLS, *call("f", O, 'json type="object"', S, '{"b":2}', C, "json", S), *END),
        ("", "", (Call("f", '{"b":2}'),)),
    ),
    "json and arguments in a call": (
        (*TOOLS, *call("f", *JSON_B, *ARGUMENT), *call("g", *ARGUMENT, *JSON_B), *END),
        ("", "", (Call("f", '{"b": 2, "x": 1}'), Call("g", '{"x": 1, "b": 2}'))),
    ),
    "json that is no object beside an argument": (
        (*TOOLS, *call("f", O, "json", S, "[1", C, "json", S, *ARGUMENT), *END),
        ("", "", (F1,)),
    ),
    "a type of the schema that the format does not have": (
        (*TOOLS, *call("f", *argument("x", "integer", "1")), *END),
        ("", "", (F1,)),
    ),
    "an integer that is none": (
        (*TOOLS, *call("f", *argument("x", "integer", "one")), *END),
        ("", "", (Call("f", '{"x": "one"}'),)),
    ),
    "one key twice": (
        (*TOOLS, *call("f", *argument("x", "number", "7"), *ARGUMENT), *END),
        ("", "", (F1,)),
    ),
    "a call left open before close(tools)": (
        (*TOOLS, O, 'call tool="f" index="1"', S, *ARGUMENT, *END_TOOLS, *END),
        ("", "", (F1,)),
    ),
    "a call left open before the next": (
        (*TOOLS, O, 'call tool="f" index="1"', S, *ARGUMENT, *call("g"), *END_TOOLS, *END),
        ("", "", (F1, Call("g", "{}"))),
    ),
    "a call left open in an argument": (
        (*TOOLS, O, 'call tool="f" index="1"', S, O, 'argument key="x"', S, "v", *END_TOOLS, *END),
        ("", "", ()),
    ),
    "marker spelt out": (
        (*THINK_R, O, "response", S, "<|close|>response<|sep|>", *END_RESPONSE, *END),
        ("R", "<|close|>response<|sep|>", ()),
    ),
    "think opened again": ((O, "think", S, *THINK_R, *RESPONSE_A, *END), ("R", "A", ())),
    "separator left out before the answer": (
        (*THINK_R, O, "responseA b", *END_RESPONSE, *END),
        ("R", "A b", ()),
    ),
    "separator left out before a value": (
        (*TOOLS, *call("f", O, 'argument key="x" type="number"1', C, "argument", S), *END),
        ("", "", (F1,)),
    ),
    "response never opened": ((*THINK_R, "\n\nA", *END), ("R", "\n\nA", ())),
    "response never opened but closed": ((*THINK_R, "A", *END_RESPONSE, *END), ("R", "A", ())),
    "text between channels": (
        (*THINK_R, "x", *RESPONSE_A, "y", *TOOLS, "z", *call("g", "u"), "v", *END_TOOLS, "w", *END),
        ("R", "A", (Call("g", "{}"),)),
    ),
    "a marker before text that is no tag": (
        (*THINK_R, O, "response", S, "use ", O, " here", *END_RESPONSE, *END),
        ("R", "use  here", ()),
    ),
    "unknown tag": (
        (*THINK_R, O, "response", S, O, 'note a="b"', S, "A", C, "note", S, *END),
        ("R", "A", ()),
    ),
    "argument without key, call without name": (
        (*TOOLS, *call("f", O, "argument", S, "1", C, "argument", S), O, "call", S, C, "call", S),
        ("", "", (Call("f", "{}"),)),
    ),
    "call outside tools": (("R", *call("f", *ARGUMENT), *END), ("R", "", (F1,))),
    "unclosed argument": (
        (*TOOLS, *call("f", O, 'argument key="s" type="string"', S, " v ", *ARGUMENT), *END),
        ("", "", (Call("f", '{"s": " v ", "x": 1}'),)),
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_nothing_is_lost_and_nothing_leaks(name: str) -> None:
    pieces, (reasoning, content, calls) = SHAPES[name]
    assert answer(*pieces) == Answer(reasoning=reasoning, content=content, calls=calls)


def test_without_thinking_text_is_the_answer() -> None:
    assert answer("A", *END_RESPONSE, *END, is_thinking=False).content == "A"


def test_a_skipped_channel_is_sent_again_as_the_answer() -> None:
    assert events(("A", *END_RESPONSE, *END)) == [Reasoning("A"), ReasoningWasContent("A")]


def test_after_the_end_nothing_counts() -> None:
    assert answer(*THINK_R, *RESPONSE_A, *END, *RESPONSE_A).content == "A"


NAMES = ("think", "response", "tools", "message", 'call tool="f"', 'argument key="k"', "json")
TEXTS = st.one_of(st.sampled_from((*NAMES, "resp", "1", "\n")), st.text(max_size=200))
STREAMS = st.lists(st.one_of(st.sampled_from(Marker), TEXTS), max_size=30)


def cut(pieces: Pieces, places: Sequence[int]) -> list[Marker | str]:
    found: list[Marker | str] = []
    for index, piece in enumerate(pieces):
        if isinstance(piece, Marker) or not piece:
            found.append(piece)
            continue
        at = places[index % len(places)] % len(piece)
        found += [piece[:at], piece[at:]]
    return found


@given(STREAMS, st.booleans(), st.lists(st.integers(0, 500), min_size=1))
def test_pieces_do_not_matter(pieces: Pieces, is_thinking: bool, places: list[int]) -> None:
    joined = answer(*pieces, is_thinking=is_thinking)
    assert answer(*cut(pieces, places), is_thinking=is_thinking) == joined
    letters = [p for piece in pieces for p in ((piece,) if isinstance(piece, Marker) else piece)]
    assert answer(*letters, is_thinking=is_thinking) == joined


@given(STREAMS, st.booleans())
def test_arguments_are_json_or_what_the_model_gave_as_json(
    pieces: Pieces, is_thinking: bool
) -> None:
    texts = "".join(piece for piece in pieces if isinstance(piece, str))
    for made in answer(*pieces, is_thinking=is_thinking).calls:
        assert made.arguments in texts or isinstance(json.loads(made.arguments), dict)


@given(STREAMS, STREAMS)
def test_what_was_sent_is_never_taken_back(first: Pieces, second: Pieces) -> None:
    parser = OutputParser(is_thinking=True)
    sent = [event for piece in first for event in parser.feed(piece)]
    assert events((*first, *second))[: len(sent)] == sent


def pieces_of(rendered: Iterable[tuple[str, bool]]) -> list[Marker | str]:
    return [SPELT[text] if special else text for text, special in rendered]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(
    st.text(min_size=1).filter(str.strip),
    st.text(),
    st.lists(st.tuples(st.from_regex(r"[a-z]{1,9}", fullmatch=True),
                       st.dictionaries(st.text(max_size=20), VALUES, max_size=3)), max_size=3),
)  # fmt: skip
def test_a_rendered_answer_is_read_back_as_it_was(
    reasoning: str, content: str, calls: list[tuple[str, dict[str, object]]]
) -> None:
    made = [{"function": {"name": name, "arguments": given}} for name, given in calls]
    message = {
        "role": "assistant",
        "reasoning": reasoning,
        "content": content,
        "tool_calls": made,
    }
    body = {"messages": [message], "reasoning_effort": "low"}
    rendered = pieces_of(prompt_segments(read_chat_request(body)))
    opening = [O, "think", S]
    start = next(i for i in range(len(rendered)) if rendered[i : i + 3] == opening) + 3
    found = answer(*rendered[start:])
    assert (found.reasoning, found.content) == (reasoning, content)
    assert [(c.name, json.loads(c.arguments)) for c in found.calls] == calls


def test_many_unclosed_headers_take_linear_work() -> None:
    pieces = (O, 'call tool="') * 50_000
    assert answer(*pieces).calls == ()
