"""The header of a safetensors file, proven against itself and the file's length.

Only the first 8 bytes, the JSON behind them and the length are looked at, never the tensor data.
Format: https://github.com/huggingface/safetensors, section Format.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from operator import add
from pathlib import Path
from typing import Any, Final, NamedTuple

from k31ctl.core.found_tensors import FoundTensor, TensorColumns, TensorKind
from k31ctl.fetch.header_text import (
    MAX_KINDS,
    MAX_TENSORS,
    BadHeader,
    Columns,
    entries,
    plain_columns,
    sound_entry,
)
from k31ctl.units import counted
from k31ctl.values import frozen

MAX_HEADER_BYTES: Final = 100_000_000
_LENGTH_BYTES: Final = 8
_MIN_HEADER_BYTES: Final = len("{}")
_NUM_THREADS: Final = 8
# What is longer is read when it is its turn, so that a few hostile headers do not add up.
MAX_AHEAD_BYTES: Final = 8 * 2**20
_MOST_BAD: Final = 1000
_OFFSETS_KEY: Final = b'"data_offsets"'


@frozen
class Header:
    """What one file says it holds, and everything that is wrong with the file.

    ``begins`` says for each tensor where it starts, counted from the first byte behind the header.
    """

    file: str
    header_bytes: int
    tensors: Sequence[FoundTensor]
    problems: tuple[str, ...]
    begins: tuple[int, ...] = ()

    @property
    def data_start(self) -> int:
        """Where the data begins in the file, in bytes."""
        return _LENGTH_BYTES + self.header_bytes


def read_headers(folder: Path, files: Sequence[str]) -> Iterator[Header]:
    """Yield the header of each file in order; a few files are read ahead by threads."""
    with ThreadPoolExecutor(max_workers=_NUM_THREADS) as pool:
        ahead: list[tuple[str, Future[_Raw | Header | None]]] = []
        waiting = iter(files)
        while True:
            while len(ahead) < _NUM_THREADS and (name := next(waiting, None)) is not None:
                ahead.append((name, pool.submit(_raw, folder, name, MAX_AHEAD_BYTES)))
            if not ahead:
                return
            name, future = ahead.pop(0)
            raw = future.result() or _raw(folder, name, MAX_HEADER_BYTES)
            del future
            yield _header(name, raw)


class _Raw(NamedTuple):
    """The bytes of a header and the length of its file."""

    text: bytes
    file_bytes: int


def bad_file(file: str, problem: str) -> Header:
    """What is left of a header that cannot be had."""
    return Header(file=file, header_bytes=0, tensors=(), problems=(problem,))


def problem_of_length(num_bytes: int, *, file_bytes: int) -> str:
    """What is wrong with the length that a file states for its header, or an empty text."""
    if not _MIN_HEADER_BYTES <= num_bytes <= file_bytes - _LENGTH_BYTES:
        return f"is too short for its header: {file_bytes:,} bytes in all"
    if num_bytes > MAX_HEADER_BYTES:
        return f"has a header of {num_bytes:,} bytes, more than {MAX_HEADER_BYTES:,}"
    return ""


def _raw(folder: Path, file: str, most_bytes: int) -> _Raw | Header | None:
    """Read the length and the text of a header; None for a longer one, a Header without tensors
    for a bad file. What is no regular file is never opened.
    """
    path = folder / file
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return bad_file(file, "is not a regular file")
        with path.open("rb", buffering=0) as stream:
            size = os.fstat(stream.fileno()).st_size
            start = stream.read(_LENGTH_BYTES)
            num_bytes = int.from_bytes(start, "little") if len(start) == _LENGTH_BYTES else 0
            if problem := problem_of_length(num_bytes, file_bytes=size):
                return bad_file(file, problem)
            return None if num_bytes > most_bytes else _Raw(_read_all(stream, num_bytes), size)
    except OSError as error:
        return bad_file(file, f"cannot be read: {error.strerror}")


def _read_all(stream: Any, num_bytes: int) -> bytes:
    parts: list[bytes] = []
    while num_bytes > 0 and (part := stream.read(num_bytes)):
        parts.append(part)
        num_bytes -= len(part)
    return b"".join(parts)


def _header(file: str, raw: _Raw | Header | None) -> Header:
    if isinstance(raw, Header):
        return raw
    assert raw is not None
    return header_of(file, raw.text, file_bytes=raw.file_bytes)


def header_of(file: str, text: bytes, *, file_bytes: int) -> Header:
    """The header that a file's JSON stands for, held against the length of the file."""
    num_bytes = len(text)
    if text.count(_OFFSETS_KEY) > MAX_TENSORS:
        problem = f"has more than {MAX_TENSORS:,} tensors in its header"
        return Header(file=file, header_bytes=num_bytes, tensors=(), problems=(problem,))
    data_bytes = file_bytes - _LENGTH_BYTES - num_bytes
    problems: list[str] = []
    columns = plain_columns(text)
    if columns is not None:
        problems = _problems_of_length(sum(k.num_bytes for k in columns[0].kinds), data_bytes)
    else:
        try:
            columns, problems = _checked(text, data_bytes)
        except BadHeader as bad:
            return Header(file=file, header_bytes=num_bytes, tensors=(), problems=(str(bad),))
    tensors, begins = columns
    return Header(
        file=file,
        header_bytes=num_bytes,
        tensors=tensors,
        problems=tuple(problems),
        begins=tuple(begins),
    )


def _checked(text: bytes, data_bytes: int) -> tuple[Columns, list[str]]:
    """Every sound tensor and its beginning, and what is wrong with the others and with the whole.

    Of the faults of single entries, the first is told and the others are counted, up to a number
    that leaves no doubt.
    """
    names: list[str] = []
    kinds: list[TensorKind] = []
    begins: list[int] = []
    same: dict[TensorKind, TensorKind] = {}
    bad: list[str] = []
    for name, entry in entries(text):
        try:
            kind, begin = sound_entry(entry)
        except BadHeader as error:
            bad.append(f"{name[:120]} {error}")
            if len(bad) == _MOST_BAD:
                break
            continue
        names.append(name)
        kinds.append(same.setdefault(kind, kind))
        begins.append(begin)
        if len(same) > MAX_KINDS:
            raise BadHeader(f"has tensors of more than {MAX_KINDS:,} types and shapes")
    tensors = TensorColumns(names, kinds)
    if bad:
        count = f"{len(bad):,}" if len(bad) < _MOST_BAD else f"{len(bad):,} or more"
        problem = bad[0] if len(bad) == 1 else f"has {count} bad entries, the first: {bad[0]}"
        return (tensors, begins), [problem]
    end_of_data = max(map(add, begins, (kind.num_bytes for kind in kinds)), default=0)
    gap = [found] if (found := _first_gap(tensors, begins)) else []
    return (tensors, begins), gap + _problems_of_length(end_of_data, data_bytes)


def _problems_of_length(end_of_data: int, data_bytes: int) -> list[str]:
    """What is wrong with a file that is longer or shorter than its tensors."""
    if end_of_data == data_bytes:
        return []
    by, word = abs(end_of_data - data_bytes), "short" if end_of_data > data_bytes else "long"
    return [f"is {counted(by, 'byte')} too {word} for the tensors in its header"]


def _first_gap(tensors: TensorColumns, begins: list[int]) -> str:
    """Where the tensors do not lie end to end, or an empty text."""
    position = 0
    ends = map(add, begins, (kind.num_bytes for kind in tensors.kinds))
    for begin, end, name in sorted(zip(begins, ends, tensors.names, strict=True)):
        if begin != position:
            kind = "overlaps the tensor before it" if begin < position else "follows a hole"
            return f"{name[:120]} {kind}, at byte {begin:,} of the data"
        position = end
    return ""
