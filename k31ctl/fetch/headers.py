"""The header of a safetensors file, proven against itself and the file's length.

Only the first 8 bytes, the JSON behind them and the length are looked at, never the tensor data.
Format: https://github.com/huggingface/safetensors, section Format.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, Final

from k31ctl.core.difference import FoundTensor
from k31ctl.values import frozen

MAX_HEADER_BYTES: Final = 100_000_000
_LENGTH_BYTES: Final = 8
_MIN_HEADER_BYTES: Final = len("{}")
_MAX_RANK: Final = 32
_MAX_ELEMENTS: Final = 2**63
_OFFSETS: Final = 2
_NUM_THREADS: Final = 8
_METADATA: Final = "__metadata__"

ELEMENT_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16,
    "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip

# One entry as every known writer spells it, with the mark behind it; anything else goes the long
# way through the JSON parser, which is three times slower for half a million tensors.
_ENTRY: Final = re.compile(
    r'"([^"\\\x00-\x1f]+)":\{"dtype":"([A-Z0-9_]+)","shape":\[([0-9,]*)\],'
    r'"data_offsets":\[(0|[1-9][0-9]{0,17}),(0|[1-9][0-9]{0,17})\]\}(?:,|\} *\Z)'
)
_ENTRY_MARKS: Final = len('"":{"dtype":"","shape":[],"data_offsets":[,]},')
_KEYS: Final = frozenset(("dtype", "shape", "data_offsets"))
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_PREFIX: Final = re.compile(r'\{(?:"__metadata__":(\{[^{}]*\}),)?')


@frozen
class Header:
    """What one file says it holds, and everything that is wrong with the file."""

    file: str
    header_bytes: int
    tensors: tuple[FoundTensor, ...]
    problems: tuple[str, ...]


class _BadFile(Exception):  # noqa: N818 - never leaves this module
    """A file or an entry that is not what the format says."""


@dataclass(frozen=True, slots=True)
class _Raw:
    """The bytes of a header and the length of its file."""

    text: bytes
    file_bytes: int


def read_headers(folder: Path, files: Sequence[str]) -> Iterator[Header]:
    """Yield the header of each file in order; a few files are read ahead by threads."""
    with ThreadPoolExecutor(max_workers=_NUM_THREADS) as pool:
        ahead: list[tuple[str, Future[_Raw | str]]] = []
        waiting = iter(files)
        while True:
            while len(ahead) < _NUM_THREADS and (name := next(waiting, None)) is not None:
                ahead.append((name, pool.submit(_raw_or_reason, folder / name)))
            if not ahead:
                return
            name, future = ahead.pop(0)
            yield _header(name, future.result())


def _raw_or_reason(path: Path) -> _Raw | str:
    try:
        return _raw(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except _BadFile as bad:
        return str(bad)


def _raw(path: Path) -> _Raw:
    """Read the length and the text of a header; a file that is no file is never opened."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise _BadFile("is not a regular file")
    with path.open("rb", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        start = stream.read(_LENGTH_BYTES)
        num_bytes = int.from_bytes(start, "little")
        if len(start) < _LENGTH_BYTES or not _MIN_HEADER_BYTES <= num_bytes <= size - _LENGTH_BYTES:
            raise _BadFile(f"is too short for its header: {size:,} bytes in all")
        if num_bytes > MAX_HEADER_BYTES:
            raise _BadFile(f"has a header of {num_bytes:,} bytes, more than {MAX_HEADER_BYTES:,}")
        text = _read_all(stream, num_bytes)
    return _Raw(text, size)


def _read_all(stream: Any, num_bytes: int) -> bytes:
    parts: list[bytes] = []
    while num_bytes > 0 and (part := stream.read(num_bytes)):
        parts.append(part)
        num_bytes -= len(part)
    return b"".join(parts)


def _header(file: str, raw: _Raw | str) -> Header:
    if isinstance(raw, str):
        return Header(file=file, header_bytes=0, tensors=(), problems=(raw,))
    header_bytes = len(raw.text)
    data_bytes = raw.file_bytes - _LENGTH_BYTES - header_bytes
    quick = _plain_tensors(raw.text, data_bytes)
    if quick is not None:
        return Header(file=file, header_bytes=header_bytes, tensors=tuple(quick), problems=())
    try:
        entries = _entries(raw.text)
    except _BadFile as bad:
        return Header(file=file, header_bytes=header_bytes, tensors=(), problems=(str(bad),))
    tensors, problems = _tensors(entries, data_bytes)
    return Header(
        file=file, header_bytes=header_bytes, tensors=tuple(tensors), problems=tuple(problems)
    )


def _plain_tensors(raw: bytes, data_bytes: int) -> list[FoundTensor] | None:
    """The tensors of a header without flaw, in plain spelling and in order; None for any other.

    The entries must tile the text, so that nothing between them goes unread.
    """
    matches = _plain_entries(raw)
    if matches is None:
        return None
    names = {match[0] for match in matches}
    if len(names) != len(matches) or _METADATA in names:
        return None
    kinds: dict[tuple[str, str], tuple[tuple[int, ...], int] | None] = {}
    tensors = []
    position, text_of_position = 0, "0"
    for name, dtype, shape_text, begin, end in matches:
        key = (dtype, shape_text)
        if key not in kinds:
            kinds[key] = _kind(dtype, shape_text)
        kind = kinds[key]
        if kind is None or begin != text_of_position:
            return None
        shape, num_bytes = kind
        position, text_of_position = position + num_bytes, end
        if int(end) != position:
            return None
        tensors.append(FoundTensor(name, dtype, shape, num_bytes))
    return tensors if position == data_bytes else None


def _plain_entries(raw: bytes) -> list[tuple[str, str, str, str, str]] | None:
    try:
        text = raw.decode()
        prefix = _PREFIX.match(text)
        if prefix is None or (prefix[1] and not _is_metadata(json.loads(prefix[1]))):
            return None
    except ValueError:
        return None
    matches = _ENTRY.findall(text, prefix.end())
    written = _ENTRY_MARKS * len(matches) + len("".join(chain.from_iterable(matches)))
    end = text.rstrip(" ")
    whole = end.endswith("]}}") and prefix.end() + written == len(end)
    return matches if whole else None


def _kind(dtype: str, shape_text: str) -> tuple[tuple[int, ...], int] | None:
    """The shape and the bytes of one tensor, where both are sound."""
    try:
        shape = json.loads(f"[{shape_text}]")
    except ValueError:
        return None
    bits = ELEMENT_BITS.get(dtype)
    if bits is None or len(shape) > _MAX_RANK or not _all_counts(shape):
        return None
    num_bits = prod(shape) * bits
    return None if num_bits % 8 else (tuple(shape), num_bits // 8)


def _is_metadata(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


def _entries(text: bytes) -> dict[str, Any]:
    """The JSON of a header, without its metadata."""
    if not text.startswith(b"{"):
        raise _BadFile("has a header that is not a JSON object")
    try:
        entries = json.loads(text)
        # The parser keeps the last of two equal keys: then fewer are left than were written.
        if text.count(b'"data_offsets"') != sum(name != _METADATA for name in entries):
            entries = json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise _BadFile("has a header that is nested too deeply") from None
    except ValueError as error:
        raise _BadFile(f"has a header that is not readable as JSON: {error}"[:160]) from None
    metadata = entries.pop(_METADATA, {})
    if not _is_metadata(metadata):
        raise _BadFile("has __metadata__ that is not a mapping of text to text")
    return entries  # type: ignore[no-any-return]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {twice[:80]!r}")
    return found


def _tensors(entries: dict[str, Any], data_bytes: int) -> tuple[list[FoundTensor], list[str]]:
    """Every sound tensor, and what is wrong with the others and with the whole."""
    tensors: list[FoundTensor] = []
    spans: list[tuple[int, int, str]] = []
    bad: list[str] = []
    for name, entry in entries.items():
        try:
            tensor, begin, end = _tensor(name, entry)
        except _BadFile as error:
            bad.append(f"{name[:120]} {error}")
            continue
        tensors.append(tensor)
        spans.append((begin, end, name))
    problems = bad[:1] if len(bad) == 1 else []
    if len(bad) > 1:
        problems = [f"has {len(bad):,} bad entries, the first: {bad[0]}"]
    if not bad and (gap := _first_gap(spans)):
        problems.append(gap)
    end_of_data = max((end for _, end, _ in spans), default=0)
    if not bad and end_of_data != data_bytes:
        by, word = abs(end_of_data - data_bytes), "short" if end_of_data > data_bytes else "long"
        problems.append(f"is {by:,} bytes too {word} for the tensors in its header")
    return tensors, problems


def _tensor(name: str, entry: Any) -> tuple[FoundTensor, int, int]:
    if not name.isascii() and _SURROGATE.search(name):
        raise _BadFile("has half a surrogate pair in its name, which is no Unicode text")
    if type(entry) is not dict or entry.keys() != _KEYS:
        raise _BadFile("does not have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    bits = ELEMENT_BITS.get(dtype) if type(dtype) is str else None
    if bits is None:
        raise _BadFile(f"has the unknown type {str(dtype)[:40]!r}")
    if type(shape) is not list or len(shape) > _MAX_RANK or not _all_counts(shape):
        raise _BadFile("has a shape that is not a list of whole numbers")
    if type(offsets) is not list or len(offsets) != _OFFSETS or not _all_counts(offsets):
        raise _BadFile("has data_offsets that are not two whole numbers")
    begin, end = offsets
    num_bytes = end - begin
    if 8 * num_bytes != prod(shape) * bits:
        raise _BadFile(f"takes {num_bytes:,} bytes, which is not {dtype} {shape}")
    return FoundTensor(name, dtype, tuple(shape), num_bytes), begin, end


def _all_counts(values: list[Any]) -> bool:
    for value in values:  # noqa: SIM110  it runs for every tensor, and all() takes twice as long
        if type(value) is not int or not 0 <= value <= _MAX_ELEMENTS:
            return False
    return True


def _first_gap(spans: list[tuple[int, int, str]]) -> str:
    """Where the tensors do not lie end to end, or an empty text."""
    position = 0
    for begin, end, name in sorted(spans):
        if begin != position:
            kind = "overlaps the tensor before it" if begin < position else "follows a hole"
            return f"{name[:120]} {kind}, at byte {begin:,} of the data"
        position = end
    return ""
