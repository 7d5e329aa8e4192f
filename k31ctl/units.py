"""Quantities with prefixes, in and out of text, and the markers that say which unit a field has."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Final, TypeVar

T = TypeVar("T")

S_PER_HOUR: Final = 3600
TOKENS_PER_M: Final = 1_000_000

_NUMBER: Final = r"([0-9](?:_?[0-9])*(?:\.[0-9](?:_?[0-9])*)?(?:[eE][+-]?[0-9]{1,3})?)"
_QUANTITY: Final = re.compile(_NUMBER + r"[ \t]*([A-Za-zµ/]*)")
_TOKENS: Final = re.compile(r"([0-9](?:_?[0-9])*)([kKmM]?)")
_BINARY: Final = {
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip
_DECIMAL: Final = {
    "": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
}  # fmt: skip
_SMALL: Final = {
    "m": Fraction(1, 10**3),
    "u": Fraction(1, 10**6),
    "µ": Fraction(1, 10**6),
    "n": Fraction(1, 10**9),
}
_TOKEN_FACTOR: Final = {"": 1, "k": 2**10, "m": 2**20}
_SHOWN_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SHOWN_DECIMAL: Final = ("", "k", "M", "G", "T", "P", "E")
_MAX_TEXT: Final = 64
_MAX_BYTES: Final = 2**63
_MAX_TOKENS: Final = 2**40
_MAX_ENTRIES: Final = 10_000
_EXAMPLES: Final = {
    "B": "42.23GiB or 42.23GB",
    "B/s": "4.8 TB/s",
    "FLOP/s": "989 TFLOP/s",
    "W": "700 W",
    "s": "5.4 us",
}


@dataclass(frozen=True, slots=True)
class Unit:
    """Marks a field as a quantity that text writes with this unit and memory holds without."""

    symbol: str


Bytes = Annotated[int, Unit("B")]
BytesPerS = Annotated[float, Unit("B/s")]
FlopsPerS = Annotated[float, Unit("FLOP/s")]
Watts = Annotated[float, Unit("W")]
Seconds = Annotated[float, Unit("s")]


def parse(text: str, unit: str) -> float:
    """Read a quantity written in ``unit``, with or without a prefix, in base units.

    >>> parse("4.8 TB/s", "B/s")
    4800000000000.0
    >>> parse("143771 MiB", "B")
    150754820096.0
    """
    try:
        value = float(_exact(text, unit))
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"{_shown(text)} is too large; write {_example(unit)}")
    return value


def parse_bytes(text: str) -> int:
    """Read a size in whole bytes, rounded down; the unit must be written.

    >>> parse_bytes("143771 MiB")
    150754820096
    """
    num_bytes = math.floor(_exact(text, "B"))
    if num_bytes > _MAX_BYTES:
        raise ValueError(f"{_shown(text)} is more than 8 EiB; write {_example('B')}")
    return num_bytes


def parse_tokens(text: str) -> int:
    """Read a positive count of tokens; ``k`` is 1024 and ``m`` is 1024 * 1024, in either case.

    >>> parse_tokens("128k")
    131072
    """
    found = _TOKENS.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    if found is None:
        raise ValueError(f"{_shown(text)} is not a count of tokens; write 8192, 8k or 1m")
    num_tokens = int(found[1]) * _TOKEN_FACTOR[found[2].lower()]
    if not 1 <= num_tokens <= _MAX_TOKENS:
        raise ValueError(f"{_shown(text)} is not between 1 and {_MAX_TOKENS:,} tokens")
    return num_tokens


def parse_list(text: str, parse_one: Callable[[str], T]) -> tuple[T, ...]:
    """Read a list with a comma between entries, each as ``parse_one`` reads it."""
    entries = text.split(",")
    if len(entries) > _MAX_ENTRIES:
        raise ValueError(f"{len(entries)} entries are too many; write at most {_MAX_ENTRIES}")
    return tuple(parse_one(entry.strip()) for entry in entries)


def counted(number_of: int, one: str) -> str:
    """A count and its noun, ``1 file`` and ``2 files``."""
    return f"{number_of:,} {one}{'' if number_of == 1 else 's'}"


def show(value: float, unit: str) -> str:
    """Write a quantity with the decimal prefix that leaves one to three digits before the point.

    >>> show(1.56e12, "B")
    '1.56 TB'
    """
    return _scaled(value, unit, _SHOWN_DECIMAL, 1000, "{:.3g}")


def show_bytes(num_bytes: float, *, binary: bool = True) -> str:
    """Write a size with a binary prefix and one decimal, or with a decimal prefix.

    >>> show_bytes(206_266_000_000)
    '192.1 GiB'
    """
    if not binary:
        return show(num_bytes, "B")
    if abs(num_bytes) < _BINARY["Ki"]:
        return f"{num_bytes:.0f} B"
    return _scaled(num_bytes, "B", _SHOWN_BINARY, 1024, "{:.1f}")


def show_gib(num_bytes: float) -> str:
    """Write a size in GiB with one decimal, without the unit, for columns of a table."""
    return f"{num_bytes / _BINARY['Gi']:,.1f}"


def _exact(text: str, unit: str) -> Fraction:
    found = _QUANTITY.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    if found is not None and not found[2] and unit:
        raise ValueError(f"{_shown(text)} has no unit; write {_example(unit)}")
    if found is None or not found[2].endswith(unit):
        raise ValueError(f"{_shown(text)} is not a quantity in {unit}; write {_example(unit)}")
    prefix = found[2][: len(found[2]) - len(unit)]
    factor = _BINARY.get(prefix) or _DECIMAL.get(prefix) or (unit != "B" and _SMALL.get(prefix))
    if not factor:
        raise ValueError(
            f"{prefix!r} in {_shown(text)} is not a prefix of {unit}; write {_example(unit)}"
        )
    return Fraction(Decimal(found[1].replace("_", ""))) * factor


def _scaled(value: float, unit: str, prefixes: tuple[str, ...], base: int, form: str) -> str:
    step, scaled = 0, float(value)
    while step < len(prefixes) - 1 and abs(float(form.format(scaled))) >= base:
        step, scaled = step + 1, scaled / base
    return f"{_plain(form.format(scaled))} {prefixes[step]}{unit}"


def _plain(digits: str) -> str:
    return f"{float(digits):.0f}" if "e" in digits else digits


def _example(unit: str) -> str:
    return _EXAMPLES.get(unit, f"a number, a prefix and {unit}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "...")


def percent(share: float) -> str:
    """Return a share, 1 for the whole, as percent to three digits."""
    return f"{share * 100:.3g} %"
