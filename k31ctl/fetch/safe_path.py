"""Paths that a record or a hub names, held inside the folder that they are for."""

from typing import Final
from unicodedata import bidirectional, category

from k31ctl.errors import InputError

# Line ends, escapes of a terminal and halves of a character; marks that turn the text around.
_NOT_IN_PATHS: Final = ("Cc", "Cs")
_TURNING: Final = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
_LONGEST_SHOWN: Final = 100


def is_safe(path: str) -> bool:
    """Whether a path stays inside its folder, is written in one way only, and can be shown."""
    return not (
        any(category(c) in _NOT_IN_PATHS or bidirectional(c) in _TURNING for c in path)
        or "\\" in path
        or any(part in ("", ".", "..") for part in path.split("/"))
    )


def require_safe(path: str, *, holder: str, where: str) -> str:
    """Return a safe path that ``holder`` names; raises InputError for any other."""
    if not is_safe(path):
        raise InputError(
            f"the {holder} has a file with an unsafe path: {path[:_LONGEST_SHOWN]!r}",
            where=where,
            remedy=f"do not use this {holder}; a path must stay inside the folder",
        )
    return path
