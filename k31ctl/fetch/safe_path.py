"""Paths that a record or a hub names, held inside the folder that they are for."""

from k31ctl.errors import InputError

_LONGEST_SHOWN = 100


def is_safe(path: str) -> bool:
    """Whether a path stays inside its folder and is written in one way only."""
    parts = path.split("/")
    return not ("\0" in path or "\\" in path or any(part in ("", ".", "..") for part in parts))


def require_safe(path: str, *, where: str) -> str:
    """Return a path that stays inside the folder; raises InputError for any other."""
    if not is_safe(path):
        raise InputError(
            f"the record has a file with an unsafe path: {path[:_LONGEST_SHOWN]!r}",
            where=where,
            remedy="do not use this source; a path must stay inside the folder",
        )
    return path
