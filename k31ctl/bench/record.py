"""A measurement on disk: ``run.json``, a line for each request, the gaps between events.

The folder is useful at any time: ``run.json`` is there from the start and is replaced whole, and
what has been measured is written as it ends.
"""

import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

from k31ctl import __version__
from k31ctl.bench.exchange import Exchange
from k31ctl.bench.tally import Row
from k31ctl.errors import InputError

SCHEMA: Final = "k31ctl/bench-record/v1"
GAPS_FORMAT: Final = (
    "seconds between the events that carried tokens, 32-bit little-endian floats, one answered "
    "request after another in the order of requests.jsonl, events - 1 of each"
)


class Record:
    """A folder that grows with the run, or, without a folder, only files that nobody sees."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._rows: IO[str] | None = None
        self._stage = 0
        self._head: dict[str, Any] = {}
        if folder is not None:
            _make(folder)
            self._rows = (folder / "requests.jsonl").open("w", encoding="utf-8")

    @property
    def where(self) -> str | None:
        """The folder, as it was named."""
        return None if self._folder is None else str(self._folder)

    def begin(self, head: Mapping[str, Any]) -> None:
        """Write what is needed to do it again."""
        self._head = {
            "schema": SCHEMA,
            "version": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "command": ["k31ctl", *sys.argv[1:]],
            "gaps_format": GAPS_FORMAT,
            **head,
        }
        self._write("running", [])

    def gap_files(self, stage: int) -> tuple[IO[bytes], IO[bytes]]:
        """Return the files for a stage's gaps, between events and per token."""
        self._stage = stage
        if self._folder is None:
            return TemporaryFile(), TemporaryFile()
        return (self._folder / f"gaps-{stage}.f32").open("w+b"), TemporaryFile()

    def keep(self, row: Row, _exchange: Exchange) -> None:
        """Write down one request."""
        if self._rows is None:
            return
        fields = {name: getattr(row, name) for name in Row.__slots__}  # type: ignore[attr-defined]
        self._rows.write(json.dumps({"stage": self._stage} | fields) + "\n")

    def flush(self) -> None:
        """Have the system hold what is written, so that a crash of ours loses nothing of it."""
        if self._rows is not None:
            self._rows.flush()

    def finish(self, state: str, stages: list[Any]) -> None:
        """Write what came of it."""
        if self._rows is not None:
            self._rows.close()
        self._write(state, stages)

    def _write(self, state: str, stages: list[Any]) -> None:
        if self._folder is None:
            return
        text = json.dumps(self._head | {"state": state, "stages": stages}, indent=2, sort_keys=True)
        temporary = self._folder / ".run.json"
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._folder / "run.json")


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
