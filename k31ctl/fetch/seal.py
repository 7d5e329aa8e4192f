"""A proof as it is written down: only one that reads back exactly as it was written counts.

A journal is a file like any other: a bad disk or an editor may change it. What it says goes into
the record beside the weights, so every entry carries a digest over all that it claims.
"""

import json
from hashlib import sha256
from typing import Any, Final, TypeVar

from k31ctl.fetch.digest_text import SHA256_LENGTH, is_digest

T = TypeVar("T")

_SEAL: Final = "seal"
_BOOT: Final = "boot_id"  # not sealed: one that is wrong costs a second reading and no more


def sealed(path: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return a file's entry with the digest of what it claims."""
    return entry | {_SEAL: _digest(path, entry)}


def unsealed(path: str, entry: Any) -> dict[str, Any] | None:
    """Return an entry without its seal; None where it is not as it was written."""
    if not isinstance(entry, dict):
        return None
    claims = {name: value for name, value in entry.items() if name != _SEAL}
    return claims if entry.get(_SEAL) == _digest(path, claims) else None


def is_sha256(text: object) -> bool:
    """Whether this is a SHA-256 as it is written."""
    return is_digest(text) and len(str(text)) == SHA256_LENGTH


def _digest(path: str, entry: dict[str, Any]) -> str:
    claims = {name: value for name, value in entry.items() if name != _BOOT}
    return sha256(json.dumps([path, claims], sort_keys=True).encode()).hexdigest()[:32]
