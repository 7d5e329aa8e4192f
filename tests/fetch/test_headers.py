"""Files written byte by byte, so that every fault stands in the test that shows it."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.found_tensors import FoundTensor
from k31ctl.fetch.headers import Header, read_headers

A = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}
B = {"dtype": "F32", "shape": [1], "data_offsets": [12, 16]}
ORDERS = pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["plain", "spaced"])


def written(folder: Path, header: bytes, *, data_bytes: int, length: int | None = None) -> Header:
    num_bytes = len(header) if length is None else length
    content = struct.pack("<Q", num_bytes) + header + bytes(data_bytes)
    (folder / "m.safetensors").write_bytes(content)
    return read(folder)


def read(folder: Path) -> Header:
    (header,) = read_headers(folder, ["m.safetensors"])
    return header


def shaped(folder: Path, entries: dict[str, Any], *, data_bytes: int = 16) -> Header:
    return written(folder, json.dumps(entries).encode(), data_bytes=data_bytes)


@ORDERS
def test_a_sound_file_gives_its_tensors(tmp_path: Path, separators: tuple[str, str]) -> None:
    text = json.dumps({"__metadata__": {"format": "pt"}, "a": A, "b": B}, separators=separators)
    found = written(tmp_path, text.encode() + b"   ", data_bytes=16)
    assert found.problems == ()
    assert found.tensors == (FoundTensor("a", "BF16", (2, 3), 12), FoundTensor("b", "F32", (1,), 4))
    assert found.header_bytes == len(text) + 3


@ORDERS
def test_tensors_may_stand_in_another_order_than_their_data(
    tmp_path: Path, separators: tuple[str, str]
) -> None:
    text = json.dumps({"b": B, "a": A}, separators=separators)
    found = written(tmp_path, text.encode(), data_bytes=16)
    assert (found.problems, len(found.tensors)) == ((), 2)


def test_a_scalar_and_an_empty_tensor_are_sound(tmp_path: Path) -> None:
    scalar = {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}
    empty = {"dtype": "I64", "shape": [0, 7], "data_offsets": [4, 4]}
    assert shaped(tmp_path, {"a": scalar, "b": empty}, data_bytes=4).problems == ()


def test_tensor_data_is_never_read(tmp_path: Path) -> None:
    text = json.dumps({"a": {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 2**40]}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + 2**40)
    assert read(tmp_path).problems == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dtype": "NF4"}, "a has the unknown type 'NF4'"),
        ({"dtype": 7}, "a has the unknown type '7'"),
        ({"shape": [2, -3]}, "a has a shape that is not a list of whole numbers"),
        ({"shape": [2, 3.0]}, "a has a shape that is not a list of whole numbers"),
        ({"shape": [2, True]}, "a has a shape that is not a list of whole numbers"),
        ({"shape": [1] * 1000}, "a has a shape that is not a list of whole numbers"),
        ({"shape": [10**30]}, "a has a shape that is not a list of whole numbers"),
        ({"shape": [2, 2]}, "a takes 12 bytes, which is not BF16 [2, 2]"),
        ({"dtype": "F4", "shape": [3]}, "a is F4 [3], which is no whole number of bytes"),
        ({"data_offsets": [0]}, "a has data_offsets that are not two whole numbers"),
        ({"data_offsets": [12, 0]}, "a takes -12 bytes, which is not BF16 [2, 3]"),
        ({"more": 1}, "a does not have exactly dtype, shape and data_offsets"),
    ],
)
def test_a_bad_entry_is_named(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    found = shaped(tmp_path, {"a": {**A, **changed}, "b": B})
    assert found.problems == (said,)
    assert [tensor.name for tensor in found.tensors] == ["b"]


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ([13, 17], "b follows a hole, at byte 13 of the data"),
        ([11, 15], "b overlaps the tensor before it, at byte 11 of the data"),
    ],
)
def test_tensors_lie_end_to_end(tmp_path: Path, offsets: list[int], said: str) -> None:
    found = shaped(tmp_path, {"a": A, "b": {**B, "data_offsets": offsets}}, data_bytes=offsets[1])
    assert found.problems == (said,)


@pytest.mark.parametrize(
    ("data_bytes", "said"),
    [
        (15, "is 1 byte too short for the tensors in its header"),
        (20, "is 4 bytes too long for the tensors in its header"),
    ],
)
@ORDERS
def test_a_file_is_as_long_as_its_header_says(
    tmp_path: Path, data_bytes: int, said: str, separators: tuple[str, str]
) -> None:
    text = json.dumps({"a": A, "b": B}, separators=separators)
    assert written(tmp_path, text.encode(), data_bytes=data_bytes).problems == (said,)


PLAIN = json.dumps({"a": A, "b": B}, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[]", "has a header that is not a JSON object"),
        (b"{" * 20, "has a header that is not readable as JSON"),
        (b'{"a":' + b"[" * 100_000, "a does not have exactly"),
        (b'{"a":1e999}', "a does not have exactly"),
        (b'{"a":\xff}', "has a header that is not readable as JSON"),
        (PLAIN.replace(b'},"b"', b'};"b"'), "has a header that is not readable as JSON"),
        (PLAIN.replace(b'},"b"', b'}"b"'), "has a header that is not readable as JSON"),
        (PLAIN[:-1], "has a header that is not readable as JSON"),
        (PLAIN[:-1] + b",}", "has a header that is not readable as JSON"),
        (PLAIN.replace(b"[2,3]", b"[2,,3]"), "has a header that is not readable as JSON"),
        (PLAIN.replace(b"[2,3]", b"[02,3]"), "has a header that is not readable as JSON"),
        (PLAIN.replace(b'"b"', b'"a"'), "has a header that is not readable as JSON: duplicate key"),
        (PLAIN.replace(b'"b"', b'"__metadata__"'), "has __metadata__ that is not a mapping"),
        (b'{"__metadata__":{"a":1}}', "has __metadata__ that is not a mapping of text to text"),
    ],
)
def test_a_header_that_is_not_one_is_said_so(tmp_path: Path, text: bytes, said: str) -> None:
    found = written(tmp_path, text, data_bytes=16)
    assert found.problems[0].startswith(said)


@pytest.mark.parametrize("length", [0, 1, 10**6, 2**63, 2**64 - 1])
def test_a_length_that_the_file_does_not_have_is_refused(tmp_path: Path, length: int) -> None:
    found = written(tmp_path, PLAIN, data_bytes=16, length=length)
    assert found.problems == (f"is too short for its header: {8 + len(PLAIN) + 16} bytes in all",)


def test_a_header_over_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", 10**8 + 1))
    os.truncate(path, 10**9)
    assert read(tmp_path).problems[0].startswith("has a header of 100,000,001 bytes")


@pytest.mark.parametrize("content", [b"", b"1234567"])
def test_a_file_without_a_length_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.safetensors").write_bytes(content)
    assert read(tmp_path).problems[0].startswith("is too short for its header")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.safetensors")
    assert read(tmp_path).problems == ("is not a regular file",)


def test_a_missing_file_is_a_problem_of_that_file(tmp_path: Path) -> None:
    assert read(tmp_path).problems == ("cannot be read: No such file or directory",)


def test_many_files_come_in_the_order_asked(tmp_path: Path) -> None:
    names = [f"{i}.safetensors" for i in range(30)]
    for name in names:
        (tmp_path / name).write_bytes(struct.pack("<Q", len(PLAIN)) + PLAIN + bytes(16))
    assert [header.file for header in read_headers(tmp_path, names)] == names


@given(st.integers(0, len(PLAIN) - 1), st.integers(0, 255))
@settings(max_examples=120, deadline=None)
def test_any_changed_byte_gives_an_answer_and_never_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, position: int, value: int
) -> None:
    text = PLAIN[:position] + bytes([value]) + PLAIN[position + 1 :]
    found = written(tmp_path_factory.mktemp("h"), text, data_bytes=16)
    assert found.problems or sum(tensor.num_bytes for tensor in found.tensors) == 16


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
OFFSETS = st.integers(0, 40) | st.sampled_from([2**63, 2**64, -1])
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["U8", "BF16", "F32", "F4", "bf16", "", "\ud800"]) | VALUES,
        "shape": st.lists(st.integers(0, 4) | st.just(2**62), max_size=3) | VALUES,
        "data_offsets": st.lists(OFFSETS, min_size=2, max_size=2) | VALUES,
    }
)


@ORDERS
@given(st.data())
@settings(max_examples=120, deadline=None)
def test_a_hostile_header_gives_sound_tensors_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, separators: tuple[str, str], data: st.DataObject
) -> None:
    entries = data.draw(st.dictionaries(st.text(max_size=3), ENTRIES | VALUES, max_size=4))
    text = json.dumps(entries, separators=separators).encode()
    size = data.draw(st.integers(0, 40))
    found = written(tmp_path_factory.mktemp("h"), text, data_bytes=size)
    if not found.problems:
        spans = sorted(zip(found.begins, found.tensors, strict=True))
        ends = [begin + tensor.num_bytes for begin, tensor in spans]
        assert [begin for begin, _ in spans] == [0, *ends][: len(spans)]
        assert [0, *ends][-1] == size


@given(st.binary(max_size=200), st.integers(0, 2**64 - 1) | st.integers(0, 200))
@settings(max_examples=120, deadline=None)
def test_any_bytes_give_an_answer(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, length: int
) -> None:
    found = written(tmp_path_factory.mktemp("h"), text, data_bytes=0, length=length)
    assert found.problems or sum(tensor.num_bytes for tensor in found.tensors) == 0


def test_entries_beyond_the_first_piece_of_text_are_read_too(tmp_path: Path) -> None:
    entries = {
        f"tensor.{i:06}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
        for i in range(40_000)
    }
    text = json.dumps(entries, separators=(",", ":")).encode()
    assert len(text) > 2 * 2**20
    found = written(tmp_path, text, data_bytes=len(entries))
    assert (found.problems, [t.name for t in found.tensors]) == ((), list(entries))
    assert found.begins == tuple(range(len(entries)))
