"""JSON text of a profile to plain values, as strict as the YAML of the others."""

from typing import Any

from k31ctl.errors import ProfileError
from k31ctl.outside_json import parsed


def parse_json(text: str, *, where: str) -> object:
    """Return the one value in ``text``; duplicate keys and infinite numbers are refused."""
    try:
        return parsed(text, pairs=unique)
    except ValueError as error:
        raise ProfileError(
            f"not readable as JSON: {error}", where=where, remedy="mend the file's syntax"
        ) from None


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of an object; raises ValueError where a key is there twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"duplicate key {double[:60]!r}")
    return found
