"""Headers that nobody wrote by hand, held against the reader of the format's own package.

What ``safetensors`` refuses has to be refused here with a reason. What is taken here it has to take
too, with the same names, types, shapes and bytes. Where it takes more, the tests below say so.
"""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize

from k31ctl.fetch.header_text import ELEMENT_BITS, BadHeader, entries, plain_columns, sound_entry
from k31ctl.fetch.headers import header_of
from tests.fetch.conftest import ROOT
from tests.fetch.hostile_headers import REFUSED

FUZZ = settings(max_examples=300, derandomize=True, deadline=None, database=None)
Tensors = list[tuple[str, str, list[int], int]]


def theirs(text: bytes, data_bytes: int) -> Tensors | None:
    """What the format's own package reads, or None where it refuses."""
    try:
        found = deserialize(  # type: ignore[no-untyped-call]
            struct.pack("<Q", len(text)) + text + bytes(data_bytes)
        )
    except SafetensorError:
        return None
    return sorted((name, t["dtype"], t["shape"], len(t["data"])) for name, t in found)


def ours(text: bytes, data_bytes: int) -> Tensors | None:
    found = header_of("m", text, file_bytes=8 + len(text) + data_bytes)
    if found.problems:
        assert all(found.problems)
        return None
    return sorted((t.name, t.dtype, list(t.shape), t.num_bytes) for t in found.tensors)


def agree(text: bytes, data_bytes: int) -> bool:
    """Whether we take a header; fails where we take one that the package does not."""
    mine = ours(text, data_bytes)
    if mine is not None:
        assert mine == theirs(text, data_bytes)
    return mine is not None


ANY_TEXT = st.text(max_size=4)
PLAIN_TEXT = st.text("ab._09", max_size=4)


@st.composite
def sound(
    draw: st.DrawFn, texts: st.SearchStrategy[str] = ANY_TEXT, min_size: int = 0
) -> tuple[dict[str, Any], int]:
    """A header as a writer makes it, and the length of its data."""
    made: dict[str, Any] = {}
    if draw(st.booleans()):
        made["__metadata__"] = draw(st.dictionaries(texts, texts, max_size=3))
    position = 0
    for name in draw(st.lists(texts, min_size=min_size, max_size=5, unique=True)):
        dtype = draw(st.sampled_from(sorted(ELEMENT_BITS)))
        bits = ELEMENT_BITS[dtype]
        shape = [8 if bits % 8 else 1, *draw(st.lists(st.integers(0, 3), max_size=3))]
        num_bytes = bits * prod(shape) // 8
        span = [position, position + num_bytes]
        made[name] = {"dtype": dtype, "shape": shape, "data_offsets": span}
        position += num_bytes
    return made, position


SPELLINGS: list[Callable[[dict[str, Any]], bytes]] = [
    lambda made: json.dumps(made, separators=(",", ":")).encode(),
    lambda made: json.dumps(made, separators=(",", ":")).encode() + b"   ",
    lambda made: json.dumps(made, indent=1).encode() + b"\n",
    lambda made: json.dumps(made, separators=(",", ":"), ensure_ascii=False).encode(),
    lambda made: json.dumps(dict(reversed(made.items())), separators=(",", ":")).encode(),
]
PIECES = [
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"0", b"-", b"1", b".", b"e9", b" ", b"\n",
    b"\x00", b"\xff", b"\xed\xa0\x80", b"\\u0061", b"\\ud800", b"null", b"true", b"NaN", b"-0",
    b"\x01", b"\x02", b"\x03", b'"dtype":"U8",', b'"x":1,', b'":{"dtype":"', b'],"data_offsets":[',
    b']},"', b"18446744073709551616", b'"__metadata__":{},', b"\xef\xbb\xbf",
]  # fmt: skip


@given(sound(), st.sampled_from(SPELLINGS))
@FUZZ
def test_a_sound_header_is_taken_in_any_spelling(
    made: tuple[dict[str, Any], int], spelled: Callable[[dict[str, Any]], bytes]
) -> None:
    assert agree(spelled(made[0]), made[1])


@given(sound(), st.sampled_from(SPELLINGS), st.data())
@FUZZ
def test_no_damaged_header_is_taken_that_the_package_refuses(
    made: tuple[dict[str, Any], int],
    spelled: Callable[[dict[str, Any]], bytes],
    data: st.DataObject,
) -> None:
    text = spelled(made[0])
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 4))
        text = text[:start] + data.draw(st.sampled_from(PIECES)) + text[end:]
    agree(text, max(0, made[1] + data.draw(st.sampled_from([0, 0, 0, 1, -1]))))


NUMBERS = st.integers(-1, 9) | st.sampled_from([2**31, 2**32, 2**61, 2**63, 2**64, 2**70])


@given(
    st.lists(NUMBERS, max_size=4),
    st.lists(NUMBERS, min_size=2, max_size=2),
    st.sampled_from(["U8", "F4", "F6_E2M3", "BF16", "C64", "F64"]),
)
@FUZZ
def test_numbers_that_overflow_are_refused(shape: list[int], span: list[int], dtype: str) -> None:
    entry = {"dtype": dtype, "shape": shape, "data_offsets": span}
    for separators in ((",", ":"), (", ", ": ")):
        text = json.dumps({"a": entry}, separators=separators).encode()
        agree(text, min(max(span[1], 0), 64))


@given(sound(texts=PLAIN_TEXT, min_size=1))
@FUZZ
def test_what_a_writer_writes_goes_the_quick_way_to_the_same_answer(
    made: tuple[dict[str, Any], int],
) -> None:
    text = SPELLINGS[0](made[0])
    quick = plain_columns(text)
    assert quick is not None
    slow = [(name, *sound_entry(entry)) for name, entry in entries(text)]
    assert slow == list(zip(quick[0].names, quick[0].kinds, quick[1], strict=True))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b' {"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', "is not a JSON object"),
        (b'{"a":["U8",[1],[0,1]]}', "does not have exactly"),
        (b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}', "does not have exactly"),
        (b'{"__metadata__":null,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', "metadata"),
        (
            b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
            b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            "duplicate key 'a'",
        ),
        (
            b'{"a":{"dtype":"U8","shape":[' + b"1," * 32 + b'1],"data_offsets":[0,1]}}',
            "shape that is not",
        ),
        (b'{"' + b"a" * 4097 + b'":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', "a name of"),
    ],
)
def test_the_package_takes_what_is_refused_here(text: bytes, said: str) -> None:
    assert theirs(text, 1) is not None
    found = header_of("m", text, file_bytes=8 + len(text) + 1)
    assert said in found.problems[0]


@pytest.mark.parametrize("text", [b"{", b'{"a":1}', b"{}x", b'{"__metadata__":{"a":"\\ud800"}}'])
def test_a_reason_is_given_where_the_package_refuses(text: bytes) -> None:
    assert theirs(text, 0) is None
    with pytest.raises(BadHeader):
        for _, entry in entries(text):
            sound_entry(entry)


# 100 MB of text and what Python needs for itself leave room for twice the text, not for objects
# that 100 MB of JSON may stand for.
_LIMIT_BYTES = 512 * 2**20
_READ = f"""
import resource, sys
from pathlib import Path
from k31ctl.fetch.headers import read_headers
resource.setrlimit(resource.RLIMIT_AS, ({_LIMIT_BYTES}, {_LIMIT_BYTES}))
(header,) = read_headers(Path(sys.argv[1]), ["m.safetensors"])
print(header.file, header.problems[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds a process's address space")
@pytest.mark.parametrize("kind", REFUSED)
def test_a_hostile_header_is_refused_by_name_within_bounded_memory(
    tmp_path: Path, kind: str
) -> None:
    make, said = REFUSED[kind]
    text = make()
    (tmp_path / "m.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MALLOC_ARENA_MAX": "1"},
    )
    assert done.stdout.startswith("m.safetensors "), done.stderr
    assert said in done.stdout
