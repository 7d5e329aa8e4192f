import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from k31ctl.fetch import index_text
from k31ctl.fetch.index_text import parsed

TEXTS = st.text("ab.{}[]:, 09", max_size=5) | st.text(max_size=3)
INDENTS = st.sampled_from([None, 0, 2])
PIECES = st.sampled_from([
    b'"', b"{", b"}", b",", b":", b"\\", b"\n", b" ", b"\x00", b"\xff", b"1", b"null", b'"a":"b"',
    b'"weight_map"', b'"weight_map":{}', b"[]",
])  # fmt: skip


def outcome(read: Any, text: bytes) -> object:
    """What a reader returns, or that it refuses."""
    try:
        return read(text)
    except ValueError:
        return ValueError


@given(st.dictionaries(TEXTS, TEXTS, max_size=6), st.dictionaries(TEXTS, TEXTS), INDENTS)
def test_an_index_is_what_json_says(
    names: dict[str, str], more: dict[str, str], indent: int | None
) -> None:
    document = {"metadata": more, "weight_map": names}
    assert parsed(json.dumps(document, indent=indent).encode()) == document


@given(st.dictionaries(TEXTS, TEXTS, max_size=4), INDENTS, st.data())
def test_a_damaged_index_is_what_json_says_or_refused_as_by_json(
    names: dict[str, str], indent: int | None, data: st.DataObject
) -> None:
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": names}, indent=indent).encode()
    start = data.draw(st.integers(0, len(text)))
    end = start + data.draw(st.integers(0, 3))
    text = text[:start] + data.draw(PIECES) + text[end:]
    assert outcome(parsed, text) == outcome(json.loads, text)


@given(st.binary(max_size=60))
@example(b'{"weight_map":{,"a":"b"}}')
@example(b'{"weight_map":{"a":"b",}}')
@example(b'{"weight_map":{,}}')
@example(b'{"weight_map":{"a":"b" "c":"d"}}')
@example(b'{"weight_map":{"a","b"}}')
@example(b'{"weight_map":{"a\n":"b"}}')
@example(b'{"weight_map":{"a":{"b":"c"}}}')
@example(b'{"weight_map":{"a":"b"},"weight_map":{}}')
@example(b'{"x":{"weight_map":{"a":"b"}}}')
@example(b'["weight_map",{"a":"b"}]')
def test_any_text_is_what_json_says(text: bytes) -> None:
    assert outcome(parsed, text) == outcome(json.loads, text)


def test_a_long_index_is_read_piece_by_piece() -> None:
    names = {f"model.layers.{i}.weight": f"model-{i % 96}.safetensors" for i in range(60_000)}
    text = json.dumps({"weight_map": names}, indent=2).encode()
    assert len(text) > 2 * 2**20
    assert index_text._quick(text) == {"weight_map": names}
