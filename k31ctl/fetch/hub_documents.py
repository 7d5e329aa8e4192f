"""A folder described as a hub describes a repository (huggingface_hub, ``HfApi.model_info``)."""

from typing import Any, Final

from k31ctl.fetch.hub import HubFile
from k31ctl.fetch.listing import Listing

_POINTER_BYTES: Final = 135


def model_info(listing: Listing) -> dict[str, Any]:
    """Return the answer to ``/api/models/REPO``, with sizes and digests."""
    snapshot = listing.snapshot
    return {
        "_id": snapshot.commit[:24],
        "id": snapshot.repo,
        "modelId": snapshot.repo,
        "sha": snapshot.commit,
        "private": False,
        "gated": snapshot.gated or False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "cardData": {"license": "other", "license_name": snapshot.licence}
        if snapshot.licence
        else {},
        "siblings": [_sibling(file) for file in snapshot.files],
    }


def tree(listing: Listing) -> list[dict[str, Any]]:
    """Return the answer to ``/api/models/REPO/tree/REV?recursive=true``: files alone."""
    return [
        {"type": "file", "path": file.path, "size": file.size_bytes, "oid": tag(file)}
        | ({"lfs": _lfs(file, key="oid")} if _is_large(file) else {})
        for file in listing.snapshot.files
    ]


def tag(file: HubFile) -> str:
    """Return what a hub sends as ETag: git's name of a small file, else its SHA-256."""
    return file.blob_id or file.content_id


def _sibling(file: HubFile) -> dict[str, Any]:
    entry: dict[str, Any] = {"rfilename": file.path, "size": file.size_bytes}
    if _is_large(file):
        return entry | {"lfs": _lfs(file, key="sha256")}
    return entry | {"blobId": file.blob_id}


def _is_large(file: HubFile) -> bool:
    return file.blob_id is None


def _lfs(file: HubFile, *, key: str) -> dict[str, Any]:
    return {key: file.sha256, "size": file.size_bytes, "pointerSize": _POINTER_BYTES}
