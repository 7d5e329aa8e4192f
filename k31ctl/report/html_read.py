"""Reads a plan's document where any key may be missing: absent and null look the same."""

import math
from collections.abc import Mapping

Row = Mapping[str, object]


def mapping(value: object) -> Row:
    """The mapping, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def rows(value: object) -> list[Row]:
    """Those entries of a list that are mappings."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def number(value: object) -> float | None:
    """The number as it is, or None for everything else, true and false among it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def count(value: object) -> int:
    """The number without its fraction, or zero."""
    return int(number(value) or 0)


def text(value: object, otherwise: str = "") -> str:
    """The text, or what to say instead."""
    return value if isinstance(value, str) and value else otherwise


def numbers(row: Row, *keys: str) -> dict[str, object]:
    """The values of these keys, each with its ``_low`` and ``_high`` where the row has them."""
    names = [key + end for key in keys for end in ("", "_low", "_high")]
    return {name: number(row.get(name)) for name in names if name in row}
