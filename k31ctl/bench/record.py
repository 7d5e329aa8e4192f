"""A measurement on disk: ``run.json``, a line for each request, gaps between events, curves.

The folder is useful at any time: ``run.json`` is there from the start and is replaced whole as
each stage ends, and requests are written as they end, a gap before the line that speaks of it.
"""

import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EFBIG, EIO, ENOENT, ENOSPC, EROFS
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

from k31ctl import __version__
from k31ctl.bench.exchange import Exchange
from k31ctl.bench.tally import Row
from k31ctl.errors import InputError
from k31ctl.values import fields_of

SCHEMA: Final = "k31ctl/bench-record/v1"
RUN_FILE: Final = "run.json"
ROWS_FILE: Final = "requests.jsonl"
GAPS_FORMAT: Final = (
    "seconds between the events that carried tokens, 32-bit little-endian floats, one answered "
    "request after another in the order of requests.jsonl, events - 1 of each"
)
_PIECE_BYTES: Final = 1 << 20
_OF_THE_DISK: Final = frozenset({EACCES, EDQUOT, EFBIG, EIO, ENOENT, ENOSPC, EROFS})


class Record:
    """A folder that grows with the run, or, without a folder, only files that nobody sees."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._rows: IO[str] | None = None
        self._gaps: IO[bytes] | None = None
        self._stage = 0
        self._head: dict[str, Any] = {}
        self._stages: list[Any] = []
        if folder is not None:
            _make(folder)
            with writing(folder):
                self._rows = (folder / ROWS_FILE).open("w", encoding="utf-8")

    @property
    def where(self) -> str | None:
        """The folder, as it was named."""
        return None if self._folder is None else str(self._folder)

    def begin(self, head: Mapping[str, Any]) -> None:
        """Write what is needed to do it again."""
        self._head = {
            "schema": SCHEMA,
            **made_with(),
            "command": ["k31ctl", *sys.argv[1:]],
            "gaps_format": GAPS_FORMAT,
            **head,
        }
        self._write("running")

    def gap_files(self, stage: int) -> tuple[IO[bytes], IO[bytes]]:
        """Return the files for a stage's gaps, between events and per token."""
        self._stage = stage
        if self._folder is None:
            return TemporaryFile(), TemporaryFile()
        with writing(self._folder):
            self._gaps = (self._folder / f"gaps-{stage}.f32").open("w+b")
        return self._gaps, TemporaryFile()

    def keep(self, row: Row, _exchange: Exchange) -> None:
        """Write down one request."""
        if self._rows is None:
            return
        self._rows.write(json.dumps({"stage": self._stage} | fields_of(row)) + "\n")

    def flush(self) -> None:
        """Have the system hold what is written, so that a crash of ours loses nothing of it."""
        with writing(self._folder):
            if self._gaps is not None and not self._gaps.closed:
                self._gaps.flush()
            if self._rows is not None:
                self._rows.flush()

    def add_stage(self, stage: Mapping[str, Any], series: Mapping[str, Any]) -> None:
        """Write what a stage came to, while others are still to come."""
        self._stages.append(stage)
        self.flush()
        if self._folder is not None:
            self._write_whole(f"series-{len(self._stages) - 1}.json", json.dumps(series))
        self._write("running")

    def finish(self, state: str, tail: Mapping[str, Any]) -> None:
        """Write how it ended: ``complete``, ``interrupted`` or ``failed``."""
        if self._rows is not None:
            with writing(self._folder):
                self._rows.close()
        self._head |= tail
        self._write(state)

    def _write(self, state: str) -> None:
        if self._folder is not None:
            document = self._head | {"state": state, "stages": self._stages}
            self._write_whole(RUN_FILE, json.dumps(document, indent=2, sort_keys=True))

    def _write_whole(self, name: str, text: str) -> None:
        assert self._folder is not None
        temporary = self._folder / f".{name}"
        try:
            with writing(self._folder):
                with temporary.open("w", encoding="utf-8") as file:
                    file.write(text + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self._folder / name)
        finally:
            temporary.unlink(missing_ok=True)


def made_with() -> dict[str, Any]:
    """What is at work on this side."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "num_cpus": os.cpu_count(),
    }


@contextmanager
def writing(folder: Path | None) -> Iterator[None]:
    """Raise InputError where the disk does not take what is written in the block."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_THE_DISK:
            raise
        raise InputError(
            f"the measurement cannot be written: {(error.strerror or 'failed').lower()}",
            where=str(folder or "the folder for temporary files"),
            remedy="make room there, or name another folder with --out",
        ) from error


def file_digests(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Name, size and SHA-256 of the files that a load is read from."""
    return [_digest(path) for path in paths]


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    match value:
        case Mapping():
            return {str(key): plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [plain(entry) for entry in value]
        case _ if hasattr(value, "__dataclass_fields__"):
            return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def _digest(path: Path) -> dict[str, Any]:
    found, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            found.update(piece)
            size += len(piece)
    return {"path": str(path), "bytes": size, "sha256": found.hexdigest()}


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as error:
        raise InputError(
            f"cannot make the folder: {(error.strerror or 'failed').lower()}",
            where=str(folder),
            remedy="name a folder that you may write to",
        ) from None
    if taken:
        raise InputError(
            "the folder is not empty; a record is never written over another",
            where=str(folder),
            remedy="name another folder with --out",
        )
