"""Digests as hubs and records write them: SHA-256, or git's blob id, which is SHA-1."""

import hashlib
from typing import Any, Final

SHA256_LENGTH: Final = 64
SHA1_LENGTH: Final = 40
_HEX: Final = frozenset("0123456789abcdef")


def is_digest(text: object) -> bool:
    """Whether a text can be one of the two."""
    return isinstance(text, str) and len(text) in (SHA256_LENGTH, SHA1_LENGTH) and set(text) <= _HEX


def blob_hasher(size_bytes: int) -> Any:
    """Return what makes git's id of a file of this length out of its content.

    It is the SHA-1 of ``blob SIZE``, a zero byte and the content (git's book, chapter 10.2).
    """
    return hashlib.sha1(b"blob %d\0" % size_bytes, usedforsecurity=False)
