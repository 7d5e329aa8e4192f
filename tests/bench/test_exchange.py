"""The same events are counted however their bytes are cut, on the short way and on the long one."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from k31ctl.bench.deltas import Part
from k31ctl.bench.exchange import Exchange, Order
from tests.bench.sse_server import DONE, END, HEAD, chunk, delta, event, usage

ORDER = Order(content=b"", prompt_tokens=1, output_tokens=1000, user=0, number=0, keeps_text=True)
TEXT = st.text(max_size=6) | st.sampled_from([" tok", '"', "\\", "\n", "é", "}", '"}'])
KEY = st.sampled_from(["content", "reasoning", "reasoning_content"])


def read(*pieces: bytes) -> Exchange:
    exchange = Exchange(ORDER, due_s=0.0, since_s=0.0)
    for number, piece in enumerate(pieces, start=1):
        exchange.take(piece, float(number))
    exchange.settle(99.0)
    return exchange


def counted(exchange: Exchange) -> dict[str, Any]:
    return {
        "events": exchange.num_events,
        "reasoning": exchange.num_reasoning_events,
        "usage": exchange.deltas.usage,
        "finish": exchange.deltas.finish_reason,
        "said": "".join(exchange.deltas.texts[Part.ANSWER]),
        "thought": "".join(exchange.deltas.texts[Part.REASONING]),
        "gaps": len(exchange.gaps),
    }


@given(
    st.lists(st.tuples(KEY, TEXT), min_size=1, max_size=30),
    st.lists(st.integers(1, 200), max_size=40),
    st.booleans(),
)
def test_any_cut_of_a_stream_counts_the_same(
    parts: list[tuple[str, str]], sizes: list[int], is_escaped: bool
) -> None:
    documents = [delta(**{key: text}) for key, text in [("content", "first"), *parts]]
    texts = [json.dumps(d, ensure_ascii=is_escaped) for d in documents]
    wire = HEAD + b"".join(chunk(event(text)) for text in texts)
    wire += chunk(event(delta(finish="stop"))) + chunk(event(usage(3, 9))) + chunk(DONE) + END
    pieces = []
    for size in sizes:
        pieces.append(wire[:size])
        wire = wire[size:]
    found = counted(read(*pieces, wire))
    said = [(key, text) for key, text in [("content", "first"), *parts] if text]
    assert found["events"] == len(said)
    assert found["gaps"] == len(said) - 1
    assert found["said"] == "".join(text for key, text in said if key == "content")
    assert found["thought"] == "".join(text for key, text in said if key != "content")
    assert found["reasoning"] == sum(key != "content" for key, _ in said)
    assert found["finish"] == "stop"


def test_a_text_that_looks_like_the_rest_of_an_event_is_text() -> None:
    trap = '"},"finish_reason":null}]}'
    documents = [delta(content=text) for text in ("a", "b", trap, "c")]
    wire = [chunk(event(d)) for d in documents]
    exchange = read(HEAD, *wire, chunk(event(delta(finish="stop"))) + chunk(DONE) + END)
    assert "".join(exchange.deltas.texts[Part.ANSWER]) == f"ab{trap}c"


def test_events_in_one_chunk_or_across_chunks_are_counted_once() -> None:
    tokens = b"".join(event(delta(content=f"t{n}")) for n in range(20))
    halves = chunk(tokens[:777]) + chunk(tokens[777:])
    end = chunk(event(delta(finish="stop"))) + END
    assert read(HEAD, chunk(tokens), end).num_events == 20
    assert read(HEAD, halves, end).num_events == 20
    single = [chunk(event(delta(content=f"t{n}"))) for n in range(20)]
    assert read(HEAD, *single, end).num_events == 20


def test_gaps_are_between_the_times_that_events_came() -> None:
    tokens = [chunk(event(delta(content=f"t{n}"))) for n in range(4)]
    exchange = Exchange(ORDER, due_s=1.0, since_s=1.0)
    for piece, now_s in zip([HEAD, *tokens], (1.5, 2.0, 2.25, 3.0, 3.0), strict=True):
        exchange.take(piece, now_s)
    assert exchange.first_event_s == 2.0
    assert list(exchange.gaps) == [0.25, 0.75, 0.0]
