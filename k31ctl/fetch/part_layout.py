"""Where the bytes of a part come from and where they go: files, chunks, and the way between.

Tensors keep their order, so what a run of source bytes becomes is one run of the written file. That
makes a chunk of the source a unit to fetch, to note and to check again.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from typing import Final

from k31ctl.fetch.headers import Header
from k31ctl.fetch.selection import ByteRange, Chosen, by_file, byte_ranges
from k31ctl.values import frozen

CHUNK_BYTES: Final = 8 * 2**20
MOST_CHUNKS: Final = 8  # neighbours that one request asks for
_ALIGN: Final = 8


@frozen
class PartFile:
    """One file to write: ``head`` first, then the tensors one after the other.

    ``starts`` are the first bytes to read of each tensor, ``begins`` where it is written.

    A file of which every tensor is chosen whole is taken as it is, header and all, so that its
    digest can be held against the published one; it then counts as one run of bytes.
    """

    path: str
    head: bytes
    held: tuple[Chosen, ...]
    starts: tuple[int, ...]
    begins: tuple[int, ...]
    size_bytes: int
    num_tensors: int
    is_whole: bool

    def place_of(self, position: int) -> int:
        """Where in the written file goes what follows this byte of the source."""
        i = bisect_right(self.starts, position) - 1
        if i < 0:
            return len(self.head)
        return self.begins[i] + _num_written_before(self.held[i], position)

    def cut(self, position: int, content: memoryview) -> Iterator[memoryview]:
        """Yield what is written of source bytes that begin at ``position``, in order."""
        end = position + len(content)
        i = max(0, bisect_right(self.starts, position) - 1)
        for each in islice(self.held, i, None):
            first, last = each.span
            if first >= end:
                return
            begin, stop = max(first, position), min(last, end)
            if begin < stop:
                inside = content[begin - position : stop - position]
                yield from _cut(each, begin - each.start, inside)


@frozen
class Chunk:
    """Bytes ``start`` up to ``end`` of the source, written to ``first`` up to ``last``."""

    number: int
    file: int
    start: int
    end: int
    first: int
    last: int

    @property
    def num_bytes(self) -> int:
        """Bytes to read."""
        return self.end - self.start


@frozen
class PartLayout:
    """All files of a part and the chunks that they are fetched in."""

    files: tuple[PartFile, ...]
    chunks: tuple[Chunk, ...]
    num_ranges: int

    @property
    def num_requests(self) -> int:
        """Requests for all of it, without those that only redirect."""
        count = in_request = 0
        before: tuple[int, int] | None = None
        for chunk in self.chunks:
            if before != (chunk.file, chunk.start) or in_request == MOST_CHUNKS:
                count, in_request = count + 1, 0
            in_request += 1
            before = chunk.file, chunk.end
        return count

    @property
    def read_bytes(self) -> int:
        """Bytes to read from the source."""
        return sum(chunk.num_bytes for chunk in self.chunks)

    @property
    def written_bytes(self) -> int:
        """Bytes of all weight files that are written."""
        return sum(file.size_bytes for file in self.files)

    @property
    def num_tensors(self) -> int:
        """Tensors that are written."""
        return sum(file.num_tensors for file in self.files)

    def digest(self) -> str:
        """What names this layout: notes of one never fit another."""
        found = sha256()
        for file in self.files:
            found.update(f"{file.path}\0{file.size_bytes}\0{len(file.head)}\0".encode())
            found.update(file.head)
        for chunk in self.chunks:
            told = (chunk.file, chunk.start, chunk.end, chunk.first, chunk.last)
            found.update(f"{told}".encode())
        return found.hexdigest()


def layout_of(
    headers: Iterable[Header], chosen: Sequence[Chosen], sizes: Mapping[str, int]
) -> PartLayout:
    """Return the files and chunks that bring these tensors; ``sizes`` are of whole files."""
    num_all = {header.file: len(header.tensors) for header in headers}
    files: list[PartFile] = []
    chunks: list[Chunk] = []
    num_ranges = 0
    for path, held in by_file(chosen):
        whole = len(held) == num_all[path] and all(each.part is None for each in held)
        file = _taken_whole(path, sizes[path], len(held)) if whole else _part_file(path, held)
        spans = [span for span in byte_ranges(file.held) if span.start < span.end]
        num_ranges += len(spans)
        for span in spans:
            chunks.extend(_chunks(file, len(files), span, len(chunks)))
        files.append(file)
    return PartLayout(files=tuple(files), chunks=tuple(chunks), num_ranges=num_ranges)


def whole_file(path: str, size_bytes: int) -> PartLayout:
    """The layout of one file that is taken as it is, whatever is in it."""
    file = _taken_whole(path, size_bytes, 0)
    chunks = tuple(_chunks(file, 0, ByteRange(file=path, start=0, end=size_bytes), 0))
    return PartLayout(files=(file,), chunks=chunks, num_ranges=1)


def only(layout: PartLayout, path: str) -> PartLayout:
    """The layout of one file of a part."""
    number = next(i for i, file in enumerate(layout.files) if file.path == path)
    chunks = tuple(replace(c, file=0) for c in layout.chunks if c.file == number)
    return PartLayout(files=(layout.files[number],), chunks=chunks, num_ranges=len(chunks))


def _chunks(file: PartFile, number: int, span: ByteRange, first: int) -> Iterator[Chunk]:
    """The chunks of a range, numbered from ``first``."""
    for i, start in enumerate(range(span.start, span.end, CHUNK_BYTES)):
        end = min(start + CHUNK_BYTES, span.end)
        yield Chunk(
            number=first + i,
            file=number,
            start=start,
            end=end,
            first=file.place_of(start),
            last=file.place_of(end),
        )


def _taken_whole(path: str, size_bytes: int, num_tensors: int) -> PartFile:
    everything = Chosen(
        name="", dtype="U8", shape=(size_bytes,), file=path, start=0, num_bytes=size_bytes
    )
    return PartFile(
        path=path,
        head=b"",
        held=(everything,),
        starts=(0,),
        begins=(0,),
        size_bytes=size_bytes,
        num_tensors=num_tensors,
        is_whole=True,
    )


def _part_file(path: str, held: Sequence[Chosen]) -> PartFile:
    head = _head(held)
    begins, end = [], len(head)
    for each in held:
        begins.append(end)
        end += each.written_bytes
    return PartFile(
        path=path,
        head=head,
        held=tuple(held),
        starts=tuple(each.span[0] for each in held),
        begins=tuple(begins),
        size_bytes=end,
        num_tensors=len(held),
        is_whole=False,
    )


def _head(held: Iterable[Chosen]) -> bytes:
    """The header of a file, filled up so that the data is aligned."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for each in held:
        begin, end = end, end + each.written_bytes
        shape = list(each.written_shape)
        entries[each.name] = {"dtype": each.dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    return len(text).to_bytes(8, "little") + text


def _columns(chosen: Chosen) -> tuple[int, int, int] | None:
    """Bytes of a row, and first and last byte of it that are written; None where all are."""
    if chosen.part is None or chosen.part.axis == 0:
        return None
    row = chosen.num_bytes // chosen.shape[0]
    unit = row // chosen.shape[1]
    return row, chosen.part.first * unit, chosen.part.end * unit


def _num_written_before(chosen: Chosen, position: int) -> int:
    """How many bytes are written of what lies before a byte of the source."""
    first, last = chosen.span
    columns = _columns(chosen)
    if columns is None:
        return min(max(position, first), last) - first
    row, begin, end = columns
    done = min(max(position - chosen.start, 0), chosen.num_bytes)
    return done // row * (end - begin) + min(max(done % row - begin, 0), end - begin)


def _cut(chosen: Chosen, offset: int, content: memoryview) -> Iterator[memoryview]:
    """Yield what is written of bytes of a tensor that begin at ``offset`` in it."""
    columns = _columns(chosen)
    if columns is None:
        yield content
        return
    row, begin, end = columns
    for at in range(offset // row * row, offset + len(content), row):
        first, last = max(at + begin - offset, 0), at + end - offset
        if last > first and first < len(content):
            yield content[first:last]
