"""Answers out of bytes that come in any pieces."""

import gzip
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.bench.http1 import ResponseReader
from k31ctl.bench.trouble import Trouble, TroubleError

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(*pieces: bytes) -> tuple[ResponseReader, bytes]:
    reader = ResponseReader()
    return reader, b"".join([reader.feed(piece) for piece in pieces])


def test_a_body_of_known_length_ends_with_it() -> None:
    reader, body = read(b"HTTP/1.1 429 No\r\nContent-Length: 4\r\nRetry-After: 7\r\n\r\nbusy")
    assert (reader.status, body, reader.is_done) == (429, b"busy", True)
    assert reader.headers["retry-after"] == "7"
    assert reader.keeps_alive


def test_a_body_of_no_length_ends_with_the_connection() -> None:
    reader, body = read(b"HTTP/1.0 200 OK\r\n\r\nall", b" of it")
    assert (body, reader.is_done) == (b"all of it", False)
    reader.close()
    assert reader.is_done


def test_an_interim_answer_is_passed_over() -> None:
    reader, body = read(b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + b"1\r\na\r\n0\r\n\r\n")
    assert (reader.status, body, reader.is_done) == (200, b"a", True)


def test_extensions_and_trailers_of_chunks_are_passed_over() -> None:
    reader, body = read(CHUNKED + b"3;x=y\r\nabc\r\n0\r\nTrailer: 1\r\n\r\n")
    assert (body, reader.is_done) == (b"abc", True)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.booleans(), st.data())
def test_any_split_of_chunks_gives_the_same_body(
    contents: list[bytes], zipped: bool, data: st.DataObject
) -> None:
    body = b"".join(contents)
    sent = [gzip.compress(body)] if zipped else contents
    head = CHUNKED[:-2] + b"Content-Encoding: gzip\r\n\r\n" if zipped else CHUNKED
    wire = head + b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in sent) + b"0\r\n\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=12)))
    edges = [0, *cuts, len(wire)]
    reader, found = read(*(wire[a:b] for a, b in pairwise(edges)))
    assert (found, reader.is_done) == (body, True)


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", Trouble.BAD_HTTP),
        (b"\x15\x03\x01\x00\x02", Trouble.BAD_HTTP),
        (b"HTTP/1.1 abc\r\n\r\n", Trouble.BAD_HTTP),
        (b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", Trouble.BAD_HTTP),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Trouble.BAD_HTTP),
        (CHUNKED + b"zz\r\n", Trouble.BAD_HTTP),
        (CHUNKED + b"-5\r\n", Trouble.BAD_HTTP),
        (CHUNKED + b"1" * 5000, Trouble.BAD_HTTP),
        (CHUNKED[:-2] + b"Content-Encoding: br\r\n\r\n", Trouble.BAD_HTTP),
        (CHUNKED[:-2] + b"Content-Encoding: gzip\r\n\r\n3\r\nabc\r\n", Trouble.BAD_HTTP),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000, Trouble.OVERSIZED),
    ],
)
def test_what_is_no_answer_is_refused(wire: bytes, kind: Trouble) -> None:
    with pytest.raises(TroubleError) as failure:
        read(wire)
    assert failure.value.kind is kind


def test_gzip_that_unpacks_to_very_much_is_refused() -> None:
    bomb = gzip.compress(bytes(64 * 2**20))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    with pytest.raises(TroubleError) as failure:
        read(head + bomb)
    assert failure.value.kind is Trouble.OVERSIZED


@pytest.mark.parametrize("wire", [b"", b"HTTP/1.1 200", CHUNKED + b"5\r\nab", CHUNKED])
def test_an_end_in_the_middle_is_told(wire: bytes) -> None:
    reader, _ = read(wire)
    with pytest.raises(TroubleError) as failure:
        reader.close()
    assert failure.value.kind is Trouble.CUT
