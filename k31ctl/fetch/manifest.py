"""The record beside the weights: what they are, where from, when, and under which terms."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from k31ctl import __version__
from k31ctl.errors import InputError
from k31ctl.fetch.authority import Authority, AuthorityKind
from k31ctl.fetch.hub import HubFile, Snapshot
from k31ctl.fetch.journal import replace
from k31ctl.fetch.licence_text import LicenceText, is_licence
from k31ctl.outside_json import parsed
from k31ctl.regular_file import read_regular
from k31ctl.values import fields_of, frozen

MANIFEST_NAME: Final = "k31ctl-manifest.json"
SCHEMA: Final = "k31ctl/manifest/v1"
MAX_MANIFEST_BYTES: Final = 64 * 2**20


@frozen
class ManifestFile:
    """A file that was proven; ``sha256`` is of the bytes that were read.

    ``blob_id`` is git's name of a small file, where the hub said it. ``sources`` gave the bytes;
    it is empty where they were there before, or where an older version wrote the record.
    """

    path: str
    size_bytes: int
    sha256: str
    blob_id: str | None = None
    sources: tuple[str, ...] = ()


@frozen
class Manifest:
    """What lies in a folder; a later check needs nothing else.

    What has a default came after the first version of the record and may be missing in one.
    """

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
    accepted_at: str | None = None
    licence_texts: tuple[LicenceText, ...] = ()
    proven_against: Authority | None = None


@frozen
class Acceptance:
    """Who accepted the licence, and when, in ISO 8601."""

    by: str
    at: str | None


def manifest_of(
    snapshot: Snapshot,
    files: Sequence[ManifestFile],
    *,
    revision: str,
    fetched_at: str,
    acceptance: Acceptance | None,
    licence_texts: Sequence[LicenceText],
) -> Manifest:
    """Return the record of proven files; ``fetched_at`` is a time in ISO 8601."""
    ordered = tuple(sorted(files, key=lambda file: file.path))
    hub = Authority(kind=AuthorityKind.HUB, source=snapshot.endpoint)
    return Manifest(
        repo=snapshot.repo,
        endpoint=snapshot.endpoint,
        revision=revision,
        commit=snapshot.commit,
        fetched_at=fetched_at,
        version=__version__,
        licence=snapshot.licence,
        gated=snapshot.gated,
        licence_files=tuple(file.path for file in ordered if is_licence(file.path)),
        accepted_by=acceptance.by if acceptance else None,
        files=ordered,
        is_complete=len(ordered) == len(snapshot.files),
        accepted_at=acceptance.at if acceptance else None,
        licence_texts=tuple(licence_texts),
        proven_against=snapshot.authority or hub,
    )


def manifest_file(file: HubFile, *, sha256: str, sources: Sequence[str]) -> ManifestFile:
    """Return the entry of a proven file."""
    return ManifestFile(
        path=file.path,
        size_bytes=file.size_bytes,
        sha256=sha256,
        blob_id=file.blob_id,
        sources=tuple(sources),
    )


def acceptance_of(
    before: Manifest | None, snapshot: Snapshot, *, accepted_by: str | None, now: str
) -> Acceptance | None:
    """Return who accepted: as said now, or else as recorded before for the same commit."""
    if accepted_by:
        return Acceptance(by=accepted_by, at=now)
    if before is None or not before.accepted_by:
        return None
    same = (before.repo, before.commit) == (snapshot.repo, snapshot.commit)
    return Acceptance(by=before.accepted_by, at=before.accepted_at) if same else None


def write_manifest(folder: Path, manifest: Manifest) -> Path:
    """Write the record whole, durably; returns where it is."""
    path = folder / MANIFEST_NAME
    replace(path, manifest_document(manifest), sync=True)
    return path


def manifest_document(manifest: Manifest) -> dict[str, Any]:
    """Return the record as its file has it."""
    proven = manifest.proven_against
    return {
        "schema": SCHEMA,
        **fields_of(manifest),
        "files": [fields_of(file) for file in manifest.files],
        "licence_texts": [fields_of(text) for text in manifest.licence_texts],
        "proven_against": None if proven is None else fields_of(proven),
    }


def read_manifest(folder: Path) -> Manifest | None:
    """Return the record of a folder, None without one; raises InputError if it is broken."""
    path = folder / MANIFEST_NAME
    return read_manifest_file(path) if path.exists() else None


def read_manifest_file(path: Path) -> Manifest:
    """Return the record in a file; raises InputError where it cannot be read."""
    try:
        content = read_regular(path, most_bytes=MAX_MANIFEST_BYTES)
    except (OSError, ValueError):
        content = b""
    return manifest_from(content, where=str(path))


def manifest_from(content: bytes, *, where: str) -> Manifest:
    """Return the record that these bytes hold; raises InputError where they are none."""
    try:
        return _manifest(parsed(content))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(
            f"{MANIFEST_NAME} is not a record that this version can read",
            where=where,
            remedy="fetch into the folder again: proven files are kept and the record is renewed",
        ) from None


def _manifest(raw: Mapping[str, Any]) -> Manifest:
    if raw["schema"] != SCHEMA:
        raise ValueError(raw["schema"])
    names = [name for name in Manifest.__slots__ if name in raw]  # type: ignore[attr-defined]
    given = {name: raw[name] for name in names}
    proven = raw.get("proven_against")
    return Manifest(
        **given
        | {
            "files": tuple(_file(entry) for entry in raw["files"]),
            "licence_files": tuple(raw["licence_files"]),
            "licence_texts": tuple(LicenceText(**t) for t in raw.get("licence_texts", ())),
            "proven_against": None if proven is None else _authority(proven),
        }
    )


def _file(raw: Mapping[str, Any]) -> ManifestFile:
    blob_id = raw.get("blob_id")
    return ManifestFile(
        path=str(raw["path"]),
        size_bytes=int(raw["size_bytes"]),
        sha256=str(raw["sha256"]),
        blob_id=None if blob_id is None else str(blob_id),
        sources=tuple(str(source) for source in raw.get("sources", ())),
    )


def _authority(raw: Mapping[str, Any]) -> Authority:
    return Authority(
        kind=AuthorityKind(raw["kind"]), source=str(raw["source"]), reason=str(raw["reason"])
    )
