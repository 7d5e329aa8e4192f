"""A checkpoint in a folder, read by range as one on a hub is."""

from collections.abc import Generator, Mapping
from pathlib import Path

from k31ctl.fetch.hub import Snapshot

PIECE_BYTES = 64 * 1024


class CopySource:
    """A folder on this machine, as a ``k31ctl.fetch.source.Source``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.label, self.commit = str(folder), ""
        self.snapshot: Snapshot | None = None

    def sizes(self) -> Mapping[str, int]:
        """Every file and its length in bytes."""
        return {p.name: p.stat().st_size for p in sorted(self._folder.iterdir()) if p.is_file()}

    def chunks(self, file: str, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield bytes ``start`` up to ``end`` of a file, in pieces."""
        content = (self._folder / file).read_bytes()[start:end]
        for begin in range(0, len(content), PIECE_BYTES):
            yield content[begin : begin + PIECE_BYTES]
