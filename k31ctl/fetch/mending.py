"""One damaged file, mended in a copy: as few bytes as will do, and only what is proven is kept.

The copy lies in the state folder and takes the file's place once its whole digest is right. What
is tried, the cheapest first: the stretches that the marks show to be wrong; header, missing end and
what a look at the values names; all of it.
"""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

from k31ctl.fetch.deep import check_file
from k31ctl.fetch.marks import BLOCK_BYTES, MarkedSha256
from k31ctl.fetch.part_file import PartWriting
from k31ctl.fetch.source import Source, read
from k31ctl.fetch.watch import Watch

_CLONE: Final = 0x40049409  # FICLONE of linux/fs.h: the copy shares its blocks with the file
_MOST_BLOCKS: Final = 64  # wrong ones, fetched one by one
_LENGTH_BYTES: Final = 8


class How(StrEnum):
    """How a file was mended."""

    BLOCKS = "damaged blocks"
    NAMED = "header, missing end and named tensors"
    ALL = "all of it"


class Mending:
    """A copy of a damaged file and what is fetched into it."""

    def __init__(self, source: Source, writing: PartWriting, sha256: str, watch: Watch) -> None:
        self._source, self._writing, self._sha256 = source, writing, sha256
        self._watch = watch
        self.bytes_refetched = 0

    def by_marks(self, marks: Sequence[str]) -> MarkedSha256 | None:
        """Fetch the blocks that are wrong; returns the digest where the file is then right.

        The marks of a right file tell of each block whether it is, as long as all before it are.
        """
        size, digest, num_wrong = self._writing.file.size_bytes, MarkedSha256(), 0
        for first in range(0, size, BLOCK_BYTES):
            last = min(first + BLOCK_BYTES, size)
            mark = marks[first // BLOCK_BYTES] if first // BLOCK_BYTES < len(marks) else None
            before = digest.copy()
            self._take(digest, first, last)
            if not self._is_right(digest, mark, is_end=last == size):
                num_wrong += 1
                if num_wrong > _MOST_BLOCKS:
                    return None
                self.fetch([(first, last)])
                digest = before
                self._take(digest, first, last)
                if not self._is_right(digest, mark, is_end=last == size):
                    return None
        return digest if digest.hexdigest() == self._sha256 else None

    def by_ranges(self, ranges: Iterable[tuple[int, int]]) -> MarkedSha256 | None:
        """Fetch ranges; returns the digest where the file is then right."""
        self.fetch(ranges)
        digest, size = MarkedSha256(), self._writing.file.size_bytes
        for first in range(0, size, BLOCK_BYTES):
            self._take(digest, first, min(first + BLOCK_BYTES, size))
        return digest if digest.hexdigest() == self._sha256 else None

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch what makes these bytes of the file, and put it there."""
        path = self._writing.file.path
        for start, end in self._spans(ranges):
            for piece in self._source.chunks(path, start, end):
                self._writing.write(start, memoryview(piece))
                start += len(piece)  # noqa: PLW2901
                self.bytes_refetched += len(piece)

    def _spans(self, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The bytes of the source: the same ones where the file is taken as it is."""
        merged = merged_ranges(ranges)
        if self._writing.file.is_whole:
            yield from merged
            return
        for chunk in self._writing.chunks:
            if any(chunk.first < last and first < chunk.last for first, last in merged):
                yield chunk.start, chunk.end

    def _take(self, digest: MarkedSha256, first: int, last: int) -> None:
        content = self._writing.content(first, last)
        digest.update(memoryview(content))
        self._watch.advance(len(content))

    def _is_right(self, digest: MarkedSha256, mark: str | None, *, is_end: bool) -> bool:
        if is_end:
            return digest.hexdigest() == self._sha256
        return digest.marks[-1] == mark


def merged_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes, each once and in order."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        elif first < last:
            merged.append((first, last))
    return merged


def suspects(
    source: Source, folder: Path, writing: PartWriting, *, size_bytes: int
) -> list[tuple[int, int]]:
    """What is worth fetching first: the header, a missing end, and what looks wrong."""
    path = writing.file.path
    found = []
    if writing.file.is_whole and path.endswith(".safetensors") and size_bytes > _LENGTH_BYTES:
        length = int.from_bytes(read(source, path, 0, _LENGTH_BYTES), "little")
        found.append((0, min(_LENGTH_BYTES + length, size_bytes)))
    with suppress(OSError):
        there = (folder / path).stat().st_size
        found.append((min(there, size_bytes), size_bytes))
        findings = check_file(folder, path).findings if path.endswith(".safetensors") else ()
        found += [
            (f.start, min(f.end, size_bytes))
            for f in findings
            if f.start is not None and f.end is not None
        ]
    return merged_ranges(found)


def copied(path: Path, copy: Path, *, size_bytes: int) -> bool:
    """Copy a file, give it its length; returns False where it is not there or cannot be read.

    Where the filesystem can, the copy shares what it does not change.
    """
    if not path.is_file():
        return False
    copy.parent.mkdir(parents=True, exist_ok=True)
    with copy.open("wb") as made:
        try:
            with path.open("rb") as stream:
                try:
                    fcntl.ioctl(made.fileno(), _CLONE, stream.fileno())
                except OSError:
                    shutil.copyfileobj(stream, made, BLOCK_BYTES)
        except OSError as error:
            if error.filename is None and error.errno in (28, 122):  # no room, over the quota
                raise
            return False
        made.truncate(size_bytes)
    return True


def put_in_place(copy: Path, path: Path) -> None:
    """Give a proven copy the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(copy, path)  # noqa: PTH105
