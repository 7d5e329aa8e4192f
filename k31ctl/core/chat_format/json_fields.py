"""Fields of a request's JSON, checked as they are read; a failure names the field."""

from collections.abc import Mapping
from typing import Any, Final

from k31ctl.errors import InputError

_REMEDY: Final = "correct the request"
_MOST_SHOWN: Final = 80


def bad_field(where: str, what: str, remedy: str = _REMEDY) -> InputError:
    """The failure of one field."""
    return InputError(what, where=where, remedy=remedy)


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise bad_field(where, f"is {shown(value)}, not an object")
    return value


def listed(value: Any, where: str) -> list[Any]:
    """A JSON array; an absent one is empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise bad_field(where, f"is {shown(value)}, not a list")
    return value


def text(value: Any, where: str) -> str:
    """A JSON string."""
    if not isinstance(value, str):
        raise bad_field(where, f"is {shown(value)}, not a string")
    return value


def optional_text(value: Any, where: str) -> str:
    """A JSON string; an absent one is empty."""
    return "" if value is None else text(value, where)


def boolean(value: Any, where: str, *, absent: bool) -> bool:
    """A JSON boolean."""
    if value is None:
        return absent
    if not isinstance(value, bool):
        raise bad_field(where, f"is {shown(value)}, not true or false")
    return value


def integer(value: Any, where: str, *, low: int, high: int) -> int:
    """A JSON number without a fraction, within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise bad_field(where, f"is {shown(value)}, not an integer from {low} to {high}")
    return value


def number(value: Any, where: str, *, low: float, high: float) -> float:
    """A JSON number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise bad_field(where, f"is {shown(value)}, not a number from {low:g} to {high:g}")
    return float(value)


def shown(value: Any) -> str:
    """A value as a message names it, cut where it is long."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return str(value).lower()
    try:
        written = "null" if value is None else repr(value)
    except ValueError:  # an integer with more digits than Python writes out
        return "a very long number"
    return written if len(written) <= _MOST_SHOWN else f"{written[:_MOST_SHOWN]}..."
