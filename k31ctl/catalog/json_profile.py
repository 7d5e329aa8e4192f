"""JSON text of a profile to plain values, as strict as the YAML of the others."""

import json
import math
from typing import Any

from k31ctl.errors import ProfileError


def parse_json(text: str, *, where: str) -> object:
    """Return the one value in ``text``; duplicate keys and infinite numbers are refused."""
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite
        )
    except RecursionError:
        raise ProfileError(
            "nested too deep to read", where=where, remedy="mend the file's syntax"
        ) from None
    except ValueError as error:
        raise ProfileError(
            f"not readable as JSON: {error}", where=where, remedy="mend the file's syntax"
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"duplicate key {double[:60]!r}")
    return found


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:60]} is not a finite number")
    return value
