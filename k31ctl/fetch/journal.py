"""What is already here: which files are proven, and how far the others have come.

Everything lies in one folder beside the weights. ``journal.json`` names the proven files; each file
in flight has its bytes in ``parts/KEY.part`` and its state in ``parts/KEY.json``. The journal is
replaced whole by renaming, and a state is one short write over the old one of the same length, so
that a kill at any moment leaves the old one or the new one.

A part's state holds two lengths: ``written`` survives the end of the process, ``synced`` survives
the end of the machine. Which of them counts is decided by the boot in which they were noted.
"""

import json
import os
import re
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, Final

from k31ctl.errors import RefusedError
from k31ctl.fetch.hub import HubFile
from k31ctl.fetch.seal import is_sha256, sealed, unsealed
from k31ctl.outside_json import parsed
from k31ctl.regular_file import read_regular
from k31ctl.values import fields_of, frozen

STATE_FOLDER: Final = ".k31ctl"
MOST_STATE_BYTES: Final = 1 << 28
_STATE_BYTES: Final = 256
_SAVE_EVERY_S: Final = 0.5
_TEMPORARY: Final = ".tmp"
_OF_A_PART: Final = re.compile(r"[0-9a-f]{32}\.(part|json)")
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@frozen
class Proof:
    """A file whose bytes were read and were what was published.

    ``synced`` is whether the disk has confirmed them; where it has not, the proof ends with the
    boot in which it was made.
    """

    content_id: str
    sha256: str
    size_bytes: int
    mtime_ns: int
    synced: bool
    boot_id: str


class Journal:
    """The state of one target folder; all methods may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_folder = folder / STATE_FOLDER
        self.parts_folder = self.state_folder / "parts"
        self._path = self.state_folder / "journal.json"
        self._lock = threading.Lock()
        self._boot_id = boot_id()
        self._is_saved, self._saved_at = True, 0.0
        raw = _read(self._path)
        repo, rate = raw.get("repo"), raw.get("rate_bytes_per_s")
        self.repo: str | None = repo if isinstance(repo, str) else None
        is_rate = isinstance(rate, int | float) and 0 < rate < inf
        self.rate_bytes_per_s: float | None = rate if is_rate else None
        self._proofs: dict[str, Proof] = _proofs(raw.get("files", {}))

    def proof(self, file: HubFile) -> Proof | None:
        """Return the proof of a file that is unchanged since it was made, if there is one."""
        found = self._proofs.get(file.path)
        if found is None or not file.content_id or found.content_id != file.content_id:
            return None
        if found.size_bytes != file.size_bytes or file.sha256 not in (None, found.sha256):
            return None
        return self.standing_proof(file.path)

    def standing_proof(self, path: str) -> Proof | None:
        """Return the proof of whatever content is at a path, if it is unchanged since."""
        found = self._proofs.get(path)
        if found is None or (not found.synced and found.boot_id != self._boot_id):
            return None
        try:
            stat = (self.folder / path).stat()
        except (OSError, ValueError):  # a name that this locale cannot write
            return None
        same = (stat.st_size, stat.st_mtime_ns) == (found.size_bytes, found.mtime_ns)
        return found if same else None

    def begin(self, repo: str) -> None:
        """Make the folders and note whose files these are; raises RefusedError for another's."""
        if self.repo not in (None, repo):
            raise RefusedError(
                f"the folder holds {self.repo}, not {repo}",
                where=str(self.folder),
                remedy="name another folder with --to",
                rule="fetch-other-repository",
            )
        self.repo = repo
        self.parts_folder.mkdir(parents=True, exist_ok=True)
        drop_temporary(self.state_folder)
        self._save()

    def add(self, file: HubFile, *, digest: str, synced: bool) -> None:
        """Note that a file is in its place and proven.

        Of many small files in a row not each is written down at once: call ``save`` after them.
        """
        stat = (self.folder / file.path).stat()
        with self._lock:
            self._proofs[file.path] = Proof(
                content_id=file.content_id,
                sha256=digest,
                size_bytes=stat.st_size,
                mtime_ns=stat.st_mtime_ns,
                synced=synced,
                boot_id=self._boot_id,
            )
            self._is_saved = False
        if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
            self._save()

    def save(self) -> None:
        """Write down what was noted."""
        if not self._is_saved:
            self._save()

    def note_rate(self, bytes_per_s: float) -> None:
        """Keep the rate of this run, for the next estimate, where there is room for it."""
        self.rate_bytes_per_s = bytes_per_s
        with suppress(OSError):
            self._save()

    def part_path(self, file: HubFile) -> Path:
        """Return where the bytes of a file in flight lie."""
        key = sha256(f"{file.path}\0{file.content_id}\0{file.size_bytes}".encode()).hexdigest()
        return self.parts_folder / f"{key[:32]}.part"

    def resumable_bytes(self, file: HubFile) -> int:
        """Return how many bytes of a file in flight are here and may be built upon."""
        part = self.part_path(file)
        state = _read(self.state_path(file))
        kept = "written" if state.get("boot_id") == self._boot_id else "synced"
        try:
            there = part.stat().st_size
        except OSError:
            return 0
        length = state.get(kept)
        if not isinstance(length, int) or length < 0:
            return 0
        return min(length, there, file.size_bytes)

    def state_path(self, file: HubFile) -> Path:
        """Return where the state of a file in flight lies."""
        return self.part_path(file).with_suffix(".json")

    def part_state(self, *, written: int, synced: int) -> bytes:
        """Return the state of a part as it is written: always of the same length."""
        state = {"written": written, "synced": synced, "boot_id": self._boot_id}
        return json.dumps(state).encode().ljust(_STATE_BYTES - 1) + b"\n"

    def drop_part(self, file: HubFile) -> None:
        """Remove what is left of a file in flight."""
        self.state_path(file).unlink(missing_ok=True)
        self.part_path(file).unlink(missing_ok=True)

    def drop_strangers(self, files: Collection[HubFile]) -> int:
        """Remove parts that belong to none of these files; returns their bytes.

        What has another name than a part is not ours, and stays.
        """
        kept = {self.part_path(file).stem for file in files}
        freed = 0
        for path in self.parts_folder.iterdir():
            if _OF_A_PART.fullmatch(path.name) and path.stem not in kept:
                with suppress(OSError):
                    freed += path.lstat().st_size
                    path.unlink()
        return freed

    def finish(self) -> None:
        """Remove the folder of parts where it is empty."""
        with suppress(OSError):
            self.parts_folder.rmdir()

    def _save(self) -> None:
        with self._lock:
            files = {
                path: sealed(path, fields_of(proof)) for path, proof in sorted(self._proofs.items())
            }
            state = {"repo": self.repo, "rate_bytes_per_s": self.rate_bytes_per_s, "files": files}
            replace(self._path, state, sync=True)
            self._is_saved, self._saved_at = True, time.monotonic()


def boot_id() -> str:
    """Return what names this start of this machine; what it has written, it still knows."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def replace(path: Path, state: Mapping[str, Any], *, sync: bool) -> None:
    """Write a JSON file whole: under another name, then renamed."""
    temporary = path.with_name(f"{path.name}.{threading.get_ident()}{_TEMPORARY}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(state, file, indent=1, sort_keys=True)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def drop_temporary(folder: Path, names: str = "**/*") -> None:
    """Remove what a killed ``replace`` of these files has left in a folder of our own."""
    for left in folder.glob(f"{names}.*{_TEMPORARY}"):
        left.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the filesystem can."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def _read(path: Path) -> dict[str, Any]:
    """Return a state, empty where there is none that can be read."""
    try:
        found = parsed(read_regular(path, most_bytes=MOST_STATE_BYTES))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _proofs(raw: Any) -> dict[str, Proof]:
    """Return the proofs that are as they were written; a file without one is read again."""
    found = {}
    for path, entry in raw.items() if isinstance(raw, dict) else ():
        claims = unsealed(path, entry)
        if claims is not None and is_sha256(claims.get("sha256")):
            with suppress(TypeError):
                found[path] = Proof(**claims)
    return found
