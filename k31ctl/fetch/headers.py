"""The header of a safetensors file, proven against itself and the file's length.

Only the first 8 bytes, the JSON behind them and the length are looked at, never the tensor data.
Format: https://github.com/huggingface/safetensors, section Format.
"""

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from math import prod
from operator import add, sub
from pathlib import Path
from typing import Any, Final, NamedTuple

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
_BETWEEN: Final = ']},"'
_PIECE_CHARACTERS: Final = 1 << 20
_PREFIX: Final = re.compile(r'\{(?:"__metadata__":(\{[^{}]*\}),)?')


_made = partial(tuple.__new__, FoundTensor)  # half the time of its own ``_make``


@frozen
class Header:
    """What one file says it holds, and everything that is wrong with the file.

    ``begins`` says for each tensor where it starts, counted from the first byte behind the header.
    """

    file: str
    header_bytes: int
    tensors: tuple[FoundTensor, ...]
    problems: tuple[str, ...]
    begins: tuple[int, ...] = ()

    @property
    def data_start(self) -> int:
        """Where the data begins in the file, in bytes."""
        return _LENGTH_BYTES + self.header_bytes


class _BadFile(Exception):  # noqa: N818 - never leaves this module
    """A file or an entry that is not what the format says."""


class _Raw(NamedTuple):
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
    return header_of(file, raw.text, file_bytes=raw.file_bytes)


def header_of(file: str, text: bytes, *, file_bytes: int) -> Header:
    """The header that a file's JSON stands for, held against the length of the file."""
    num_bytes = len(text)
    data_bytes = file_bytes - _LENGTH_BYTES - num_bytes
    quick = _plain_tensors(text, data_bytes)
    if quick is not None:
        tensors, begins = quick
        return Header(
            file=file,
            header_bytes=num_bytes,
            tensors=tuple(tensors),
            problems=(),
            begins=tuple(begins),
        )
    try:
        entries = _entries(text)
    except _BadFile as bad:
        return Header(file=file, header_bytes=num_bytes, tensors=(), problems=(str(bad),))
    tensors, begins, problems = _tensors(entries, data_bytes)
    return Header(
        file=file,
        header_bytes=num_bytes,
        tensors=tuple(tensors),
        problems=tuple(problems),
        begins=tuple(begins),
    )


def _plain_tensors(raw: bytes, data_bytes: int) -> tuple[list[FoundTensor], list[int]] | None:
    """The tensors of a header without flaw, in plain spelling and in order; None for any other.

    The entries must tile the text, so that nothing between them goes unread. Whole columns are
    looked at, not entries: half a million of these are the time that an answer takes.
    """
    try:
        text = raw.decode()
        prefix = _PREFIX.match(text)
        if prefix is None or (prefix[1] and not _is_metadata(json.loads(prefix[1]))):
            return None
    except ValueError:
        return None
    end_of_text = len(text.rstrip(" "))
    if not text.endswith("]}}", 0, end_of_text):
        return None
    tensors: list[FoundTensor] = []
    begins: list[int] = []
    shapes: dict[str, tuple[int, ...]] = {}
    read = prefix.end()
    while read < end_of_text:
        cut = len(text)
        if cut - read > _PIECE_CHARACTERS:
            cut = text.rfind(_BETWEEN, read, read + _PIECE_CHARACTERS) + len(_BETWEEN) - 1
        columns = _plain_columns(text, read, cut, end_of_text)
        position = begins[-1] + tensors[-1].num_bytes if tensors else 0
        if columns is None or not _add_columns(columns, position, shapes, tensors, begins):
            return None
        read = cut
    names = {tensor.name for tensor in tensors}
    if len(names) != len(tensors) or _METADATA in names:
        return None
    position = begins[-1] + tensors[-1].num_bytes if tensors else 0
    return (tensors, begins) if position == data_bytes else None


_Columns = tuple[tuple[str, ...], ...]


def _plain_columns(text: str, read: int, cut: int, end_of_text: int) -> _Columns | None:
    """Names, types, shapes and both offsets of the entries of a piece of text, where they tile it.

    Behind the last entry of the text stands one mark of the five that are counted as another's.
    """
    matches = _ENTRY.findall(text, read, cut)
    columns = tuple(zip(*matches, strict=True))
    written = _ENTRY_MARKS * len(matches) + sum(sum(map(len, column)) for column in columns)
    return columns if matches and read + written == min(cut, end_of_text) else None


def _add_columns(
    columns: _Columns,
    position: int,
    shapes: dict[str, tuple[int, ...]],
    tensors: list[FoundTensor],
    begins: list[int],
) -> bool:
    """Add sound entries that lie end to end from a position on; False where they do not."""
    names, dtypes, shape_texts, begin_texts, end_texts = columns
    first, end = list(map(int, begin_texts)), list(map(int, end_texts))
    if first[0] != position or first[1:] != end[:-1]:
        return False
    sizes = list(map(sub, end, first))
    for dtype, shape_text, num_bytes in set(zip(dtypes, shape_texts, sizes, strict=True)):
        kind = _kind(dtype, shape_text)
        if kind is None or kind[1] != num_bytes:
            return False
        shapes[shape_text] = kind[0]
    rows = zip(names, dtypes, map(shapes.__getitem__, shape_texts), sizes, strict=True)
    tensors.extend(map(_made, rows))
    begins.extend(first)
    return True


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
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"duplicate key {twice[:80]!r}")
    return found


def _tensors(
    entries: dict[str, Any], data_bytes: int
) -> tuple[list[FoundTensor], list[int], list[str]]:
    """Every sound tensor and its beginning, and what is wrong with the others and with the whole.

    Of the faults of single entries, the first is told and the others are counted.
    """
    tensors: list[FoundTensor] = []
    begins: list[int] = []
    first_bad, num_bad = "", 0
    for name, entry in entries.items():
        try:
            tensor, begin = _tensor(name, entry)
        except _BadFile as error:
            first_bad = first_bad or f"{name[:120]} {error}"
            num_bad += 1
            continue
        tensors.append(tensor)
        begins.append(begin)
    if num_bad:
        more = f"has {num_bad:,} bad entries, the first: {first_bad}"
        return tensors, begins, [first_bad if num_bad == 1 else more]
    end_of_data = max((b + t.num_bytes for b, t in zip(begins, tensors, strict=True)), default=0)
    problems = [gap] if (gap := _first_gap(tensors, begins)) else []
    if end_of_data != data_bytes:
        by, word = abs(end_of_data - data_bytes), "short" if end_of_data > data_bytes else "long"
        problems.append(f"is {by:,} bytes too {word} for the tensors in its header")
    return tensors, begins, problems


def _tensor(name: str, entry: Any) -> tuple[FoundTensor, int]:
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
    return FoundTensor(name, dtype, tuple(shape), num_bytes), begin


def _all_counts(values: list[Any]) -> bool:
    for value in values:  # noqa: SIM110  it runs for every tensor, and all() takes twice as long
        if type(value) is not int or not 0 <= value <= _MAX_ELEMENTS:
            return False
    return True


def _first_gap(tensors: list[FoundTensor], begins: list[int]) -> str:
    """Where the tensors do not lie end to end, or an empty text."""
    position = 0
    ends = map(add, begins, (tensor.num_bytes for tensor in tensors))
    names = (tensor.name for tensor in tensors)
    for begin, end, name in sorted(zip(begins, ends, names, strict=True)):
        if begin != position:
            kind = "overlaps the tensor before it" if begin < position else "follows a hole"
            return f"{name[:120]} {kind}, at byte {begin:,} of the data"
        position = end
    return ""
