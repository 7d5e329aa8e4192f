"""Events out of bytes that come in any pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.bench.sse import MOST_EVENT_BYTES, EventSplitter
from k31ctl.bench.trouble import Trouble, TroubleError


def events(*pieces: bytes) -> list[bytes]:
    splitter = EventSplitter()
    found = [event for piece in pieces for event in splitter.feed(piece)]
    return found + splitter.finish()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\r\n\r\n", [b"a"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b": ping\n\ndata: a\n\n", [b"a"]),
        (b": ping\ndata: a\n\n", [b"a"]),
        (b"event: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"\n\n\n\ndata: a\n\n\n\n", [b"a"]),
        (b"data: a\n\ndata: b", [b"a", b"b"]),
        (b"database: a\n\n", []),
        (b"", []),
    ],
)
def test_events_are_what_the_standard_makes_of_lines(text: bytes, expected: list[bytes]) -> None:
    assert events(text) == expected


PART = st.sampled_from(
    [
        b"data: ",
        b"data:",
        b"x",
        b"\n",
        b"\r",
        b"\r\n",
        b": ping",
        b"\xef\xbb\xbf",
        b"\xf0\x9f\x98\x80",
    ]
)


@given(st.lists(PART, max_size=40).map(b"".join), st.data())
def test_any_split_of_the_bytes_gives_the_same_events(text: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    edges = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert events(*pieces) == events(text)


def test_an_event_without_end_is_given_up() -> None:
    splitter = EventSplitter()
    with pytest.raises(TroubleError) as failure:
        for _ in range(MOST_EVENT_BYTES // 2**20 + 1):
            splitter.feed(b"x" * 2**20)
    assert failure.value.kind is Trouble.OVERSIZED


def test_comments_are_counted() -> None:
    splitter = EventSplitter()
    splitter.feed(b": a\n\n: b\n\ndata: c\n\n")
    assert splitter.num_comments == 2
