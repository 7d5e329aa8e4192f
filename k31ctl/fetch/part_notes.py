"""What of a part is already here: which chunks were written, each with the digest of its bytes.

Everything lies in a folder beside the target, ``.NAME.k31ctl-part``: ``KEY`` is the unfinished
folder, which takes the target's name in the end, ``KEY.chunks`` has a line for each chunk that was
written. The key stands for source, commit, selection and layout, so nothing of one part gets into
another. A line counts only if the bytes on the disk still have its digest: a kill loses the chunks
under way, and a machine that stops loses what its disk had not taken, and neither leaves anything
wrong.
"""

import os
import re
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from k31ctl.fetch.journal import MOST_STATE_BYTES
from k31ctl.regular_file import read_regular

_LINE: Final = re.compile(r"(\d{1,9}) ([0-9a-f]{64}|-)")
_FORGOTTEN: Final = "-"


def work_folder(target: Path) -> Path:
    """Return where the unfinished work for a target lies."""
    return target.with_name(f".{target.name}.k31ctl-part")


class PartNotes:
    """The notes of one part; ``note`` and ``forget`` may be called from any thread."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        self.unfinished = self.folder / key
        self._path = self.folder / f"{key}.chunks"
        self._lock = threading.Lock()
        self._handle: int | None = None

    def noted(self) -> dict[int, str]:
        """Return the digest of each chunk that was written; a line cut short does not count."""
        try:
            text = read_regular(self._path, most_bytes=MOST_STATE_BYTES).decode(errors="replace")
        except OSError:
            return {}
        if not self.unfinished.is_dir():
            return {}
        found: dict[int, str] = {}
        for line in text.splitlines(keepends=True):
            match = _LINE.fullmatch(line.removesuffix("\n"))
            if match is None or not line.endswith("\n"):
                continue
            if match[2] == _FORGOTTEN:
                found.pop(int(match[1]), None)
            else:
                found[int(match[1])] = match[2]
        return found

    def begin(self) -> None:
        """Make the unfinished folder and open the notes."""
        if not self.unfinished.is_dir():
            self._path.unlink(missing_ok=True)
        self.unfinished.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._handle = os.open(self._path, flags, 0o666)
        os.write(self._handle, b"\n")  # ends a line that a kill has cut short

    def note(self, number: int, digest: str) -> None:
        """Note that the bytes of a chunk are in their place."""
        with self._lock:
            if self._handle is not None:
                os.write(self._handle, f"{number} {digest}\n".encode())

    def forget(self, number: int) -> None:
        """Note that a chunk has to be fetched again."""
        self.note(number, _FORGOTTEN)

    def close(self) -> None:
        """Close the notes; what is in them stays."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def drop(self) -> None:
        """Remove this part's unfinished work."""
        shutil.rmtree(self.unfinished, ignore_errors=True)
        self._path.unlink(missing_ok=True)

    def finish(self) -> None:
        """Remove what is left of the work for this target, also of other selections."""
        self.close()
        with suppress(OSError):
            shutil.rmtree(self.folder)
