"""What a folder is to hold: its commit's files as they were published, also while they arrive."""

from pathlib import Path
from typing import Any, Final

from k31ctl.fetch.hub import HubFile, Snapshot
from k31ctl.fetch.journal import STATE_FOLDER, replace
from k31ctl.fetch.manifest import Manifest, read_manifest
from k31ctl.outside_json import parsed
from k31ctl.regular_file import read_regular
from k31ctl.values import frozen

_NAME: Final = "snapshot.json"
_SCHEMA: Final = "k31ctl/snapshot/v1"
_MAX_BYTES: Final = 64 * 2**20


@frozen
class Listing:
    """A commit as a folder knows it; ``is_complete`` is whether all its files are listed."""

    snapshot: Snapshot
    revision: str
    is_complete: bool


def write_listing(folder: Path, snapshot: Snapshot, *, revision: str) -> None:
    """Note which files the commit has, so that a peer can be told before all are here."""
    state = {
        "schema": _SCHEMA,
        "repo": snapshot.repo,
        "endpoint": snapshot.endpoint,
        "commit": snapshot.commit,
        "revision": revision,
        "gated": snapshot.gated,
        "licence": snapshot.licence,
        "files": [
            {"path": f.path, "size_bytes": f.size_bytes, "sha256": f.sha256, "blob_id": f.blob_id}
            for f in snapshot.files
        ],
    }
    replace(folder / STATE_FOLDER / _NAME, state, sync=False)


def read_listing(folder: Path) -> Listing | None:
    """Return what a folder is to hold, by its state or else by its manifest; None without both.

    Raises InputError for a manifest that cannot be read.
    """
    try:
        raw = parsed(read_regular(folder / STATE_FOLDER / _NAME, most_bytes=_MAX_BYTES))
        return _listing(raw)
    except (OSError, ValueError, TypeError, KeyError):
        pass
    manifest = read_manifest(folder)
    return None if manifest is None else listing_of(manifest)


def listing_of(manifest: Manifest) -> Listing:
    """Return the commit as a manifest has it: only the files that were fetched."""
    snapshot = Snapshot(
        repo=manifest.repo,
        endpoint=manifest.endpoint,
        commit=manifest.commit,
        files=tuple(
            HubFile(path=f.path, size_bytes=f.size_bytes, sha256=f.sha256, blob_id=f.blob_id)
            for f in manifest.files
        ),
        gated=manifest.gated,
        licence=manifest.licence,
    )
    return Listing(snapshot=snapshot, revision=manifest.revision, is_complete=manifest.is_complete)


def _listing(raw: dict[str, Any]) -> Listing:
    if raw["schema"] != _SCHEMA:
        raise ValueError(raw["schema"])
    snapshot = Snapshot(
        repo=str(raw["repo"]),
        endpoint=str(raw["endpoint"]),
        commit=str(raw["commit"]),
        files=tuple(
            HubFile(
                path=str(f["path"]),
                size_bytes=int(f["size_bytes"]),
                sha256=f["sha256"],
                blob_id=f["blob_id"],
            )
            for f in raw["files"]
        ),
        gated=raw["gated"],
        licence=raw["licence"],
    )
    return Listing(snapshot=snapshot, revision=str(raw["revision"]), is_complete=True)
