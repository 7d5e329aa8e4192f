"""The record beside the weights: what they are, where from, when, and under which terms."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from k31ctl import __version__
from k31ctl.errors import InputError
from k31ctl.fetch.hub import HubFile, Snapshot
from k31ctl.fetch.journal import replace
from k31ctl.fetch.partial_marker import read_record
from k31ctl.values import frozen

MANIFEST_NAME: Final = "k31ctl-manifest.json"
SCHEMA: Final = "k31ctl/manifest/v1"
_MAX_BYTES: Final = 64 * 2**20
_LICENCE_NAMES: Final = ("license", "licence", "copying")


@frozen
class ManifestFile:
    """A file that was proven; ``sha256`` is of the bytes that were read."""

    path: str
    size_bytes: int
    sha256: str


@frozen
class Manifest:
    """What lies in a folder; a later check needs nothing else."""

    repo: str
    endpoint: str
    revision: str
    commit: str
    fetched_at: str
    version: str
    licence: str | None
    gated: str | None
    licence_files: tuple[str, ...]
    accepted_by: str | None
    files: tuple[ManifestFile, ...]
    is_complete: bool


def manifest_of(
    snapshot: Snapshot,
    proven: Sequence[tuple[HubFile, str]],
    *,
    revision: str,
    fetched_at: str,
    accepted_by: str | None,
) -> Manifest:
    """Return the record of files and their SHA-256; ``fetched_at`` is a time in ISO 8601."""
    files = sorted(
        (
            ManifestFile(path=file.path, size_bytes=file.size_bytes, sha256=digest)
            for file, digest in proven
        ),
        key=lambda file: file.path,
    )
    return Manifest(
        repo=snapshot.repo,
        endpoint=snapshot.endpoint,
        revision=revision,
        commit=snapshot.commit,
        fetched_at=fetched_at,
        version=__version__,
        licence=snapshot.licence,
        gated=snapshot.gated,
        licence_files=tuple(file.path for file in files if is_licence(file.path)),
        accepted_by=accepted_by,
        files=tuple(files),
        is_complete=len(files) == len(snapshot.files),
    )


def write_manifest(folder: Path, manifest: Manifest) -> Path:
    """Write the record whole, durably; returns where it is."""
    path = folder / MANIFEST_NAME
    state = {name: getattr(manifest, name) for name in Manifest.__slots__}  # type: ignore[attr-defined]
    files = [{name: getattr(f, name) for name in ManifestFile.__slots__} for f in manifest.files]  # type: ignore[attr-defined]
    replace(path, {"schema": SCHEMA} | state | {"files": files}, sync=True)
    return path


def read_manifest(folder: Path) -> Manifest | None:
    """Return the record of a folder, None without one; raises InputError if it is broken."""
    return read_manifest_file(folder / MANIFEST_NAME)


def read_manifest_file(path: Path) -> Manifest | None:
    """Return the record in a file, None without one; raises InputError if it is broken."""
    try:
        raw = json.loads(read_record(path, most_bytes=_MAX_BYTES))
        return _manifest(raw)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise InputError(
            f"{MANIFEST_NAME} is not a record that this version can read",
            where=str(path),
            remedy="fetch into the folder again: proven files are kept and the record is renewed",
        ) from None


def _manifest(raw: Mapping[str, Any]) -> Manifest:
    if raw["schema"] != SCHEMA:
        raise ValueError(raw["schema"])
    given = {name: raw[name] for name in Manifest.__slots__}  # type: ignore[attr-defined]
    files = tuple(
        ManifestFile(path=str(f["path"]), size_bytes=int(f["size_bytes"]), sha256=str(f["sha256"]))
        for f in raw["files"]
    )
    return Manifest(**(given | {"files": files, "licence_files": tuple(raw["licence_files"])}))


def is_licence(path: str) -> bool:
    """Whether a file is called as files with terms are."""
    return path.rpartition("/")[2].lower().split(".")[0] in _LICENCE_NAMES
