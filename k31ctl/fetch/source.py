"""Where a checkpoint's bytes come from, by range: a folder, or a repository on a hub."""

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from k31ctl.errors import InputError
from k31ctl.fetch.headers import (
    MAX_AHEAD_BYTES,
    MAX_HEADER_BYTES,
    Header,
    bad_file,
    header_of,
    problem_of_length,
)
from k31ctl.fetch.hub import Hub, HubFile, Snapshot
from k31ctl.fetch.index import INDEX_NAME, CheckpointFiles, checkpoint_files

SMALL_FILES: Final = ("config.json", INDEX_NAME)
_MAX_SMALL_BYTES: Final = 512 * 2**20
_LENGTH_BYTES: Final = 8
# What a header spends on a tensor beside its name: marks, type, two axes, two offsets of 11 digits.
_ENTRY_BYTES: Final = 96
_SPARE_BYTES: Final = 4096
_FIRST_GUESS_BYTES: Final = 1 << 20
_NUM_AT_ONCE: Final = 16


class Source(Protocol):
    """A checkpoint that can be read by range."""

    @property
    def label(self) -> str:
        """What the user calls it."""

    @property
    def commit(self) -> str:
        """The commit that the bytes are of; empty where it is not known."""

    @property
    def snapshot(self) -> Snapshot | None:
        """What a hub publishes of it; None where it is not from a hub."""

    def sizes(self) -> Mapping[str, int]:
        """Every file and its length in bytes."""

    def chunks(self, file: str, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield bytes ``start`` up to ``end`` of a file, in pieces."""


class HubSource:
    """A repository on a hub, at one commit."""

    def __init__(self, hub: Hub, snapshot: Snapshot) -> None:
        self._hub = hub
        self.snapshot: Snapshot | None = snapshot
        self._files: dict[str, HubFile] = {file.path: file for file in snapshot.files}
        self.label, self.commit = f"hub:{snapshot.repo}", snapshot.commit

    def sizes(self) -> Mapping[str, int]:
        """Every file and its length in bytes."""
        return {path: file.size_bytes for path, file in self._files.items()}

    def chunks(self, file: str, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield bytes ``start`` up to ``end`` of a file, in pieces."""
        assert self.snapshot is not None
        yield from self._hub.chunks(self.snapshot, self._files[file], start, end)


def read(source: Source, file: str, start: int, end: int) -> bytes:
    """Bytes ``start`` up to ``end`` of a file."""
    return b"".join(source.chunks(file, start, end))


def copy_small_files(source: Source, folder: Path) -> CheckpointFiles:
    """Put the configuration and the index into a folder; returns which weight files there are.

    Weight files without an index are stood for by empty ones, so that the folder can be listed.
    Raises InputError where there is no weight file.
    """
    sizes = source.sizes()
    for name in SMALL_FILES:
        if name not in sizes:
            continue
        if sizes[name] > _MAX_SMALL_BYTES:
            raise InputError(
                f"{name} has {sizes[name]:,} bytes",
                where=source.label,
                remedy="name a repository that holds a checkpoint",
            )
        (folder / name).write_bytes(read(source, name, 0, sizes[name]))
    for name in sizes:
        if name.endswith(".safetensors") and "/" not in name:
            (folder / name).touch()
    return checkpoint_files(folder)


def source_headers(source: Source, found: CheckpointFiles) -> Iterator[Header]:
    """Yield the header of each file in order, several asked for at once.

    How long a header is stands in its first 8 bytes. The index tells nearly as well, by the names
    that it puts into the file: so one request brings the length and the header.
    """
    sizes = source.sizes()
    guesses = _guesses(found)
    pool = ThreadPoolExecutor(max_workers=_NUM_AT_ONCE)
    waiting = iter(found.files)
    ahead: deque[tuple[str, Future[Header | None]]] = deque()
    try:
        while True:
            for file in islice(waiting, _NUM_AT_ONCE - len(ahead)):
                asked = (source, file, sizes.get(file), guesses.get(file), MAX_AHEAD_BYTES)
                ahead.append((file, pool.submit(_header, *asked)))
            if not ahead:
                return
            file, future = ahead.popleft()
            header = future.result()
            del future  # half a million tensors need not stay
            yield header or _long_header(source, file, sizes[file])
    finally:
        pool.shutdown(cancel_futures=True)


def _guesses(found: CheckpointFiles) -> dict[str, int]:
    guesses: dict[str, int] = {}
    for name, file in (found.weight_map or {}).items():
        guesses[file] = guesses.get(file, _SPARE_BYTES) + len(name) + _ENTRY_BYTES
    return guesses


def _header(
    source: Source, file: str, size: int | None, guess: int | None, most_bytes: int
) -> Header | None:
    """The header of a file; None where it is a longer one."""
    if size is None:
        return bad_file(file, "is not in the repository")
    try:
        first = read(source, file, 0, min(size, guess or _FIRST_GUESS_BYTES, most_bytes))
        num_bytes = int.from_bytes(first[:_LENGTH_BYTES], "little")
        end = _LENGTH_BYTES + num_bytes
        if problem := problem_of_length(num_bytes, file_bytes=size):
            return bad_file(file, problem)
        if num_bytes > most_bytes:
            return None
        if end > len(first):
            first += read(source, file, len(first), end)
    except OSError as error:
        return bad_file(file, f"cannot be read: {error.strerror}")
    return header_of(file, first[_LENGTH_BYTES:end], file_bytes=size)


def _long_header(source: Source, file: str, size: int) -> Header:
    """The header of a file whose turn has come, so that a few long ones do not add up."""
    header = _header(source, file, size, _LENGTH_BYTES, MAX_HEADER_BYTES)
    assert header is not None
    return header


def require_sound(headers: Sequence[Header]) -> None:
    """Raise InputError for the first file that is not what the format says."""
    for header in headers:
        if header.problems:
            raise InputError(
                f"the file {header.problems[0]}",
                where=header.file,
                remedy="name a sound checkpoint; k31ctl inspect shows every fault",
            )
