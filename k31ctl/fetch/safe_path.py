"""Paths that a record or a hub names, held inside the folder that they are for."""

from typing import Final
from unicodedata import category

from k31ctl.errors import InputError

# Line ends, escapes of a terminal, halves of a character, and what is invisible: marks that turn
# the text around, joiners and blanks without a width, which make two names look like one.
_NOT_IN_PATHS: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")
_BLANK_LETTERS: Final = "\u115f\u1160\u2800\u3164\uffa0"  # fillers, and Braille without a dot
_LONGEST_SHOWN: Final = 100


def is_safe(path: str) -> bool:
    """Whether a path stays inside its folder, is written in one way only, and can be shown."""
    return not (
        any(category(c) in _NOT_IN_PATHS for c in path)
        or "\\" in path
        or any(_is_blank(part) or part in (".", "..") for part in path.split("/"))
    )


def _is_blank(part: str) -> bool:
    return all(c.isspace() or c in _BLANK_LETTERS for c in part)


def require_safe(path: str, *, holder: str, where: str) -> str:
    """Return a safe path that ``holder`` names; raises InputError for any other."""
    if not is_safe(path):
        raise InputError(
            f"the {holder} has a file with an unsafe path: {path[:_LONGEST_SHOWN]!a}",
            where=where,
            remedy=f"do not use this {holder}; a path must stay inside the folder and be readable",
        )
    return path
