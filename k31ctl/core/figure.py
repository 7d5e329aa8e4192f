"""Where a number comes from: its basis, its source, and the assumptions behind it."""

from enum import StrEnum
from functools import cache

from k31ctl.values import frozen


class Basis(StrEnum):
    """How a number is known.

    ``exact`` is kept for sums that equal a published checkpoint's own headers to the byte.
    """

    EXACT = "exact"
    DERIVED = "derived"
    MEASURED = "measured"
    ASSUMED = "assumed"


@frozen
class Assumption:
    """Something that is believed and not known; ``id`` is what an answer refers to."""

    id: str
    text: str
    basis: Basis
    source: str


@frozen
class Line:
    """One line of a memory budget, in bytes, with every basis that went into it."""

    key: str
    label: str
    num_bytes: int
    bases: tuple[Basis, ...]
    source: str
    assumption: str = ""


@cache
def merged(*bases: Basis) -> tuple[Basis, ...]:
    """Every distinct basis, in the order of the enumeration: a sum carries them all."""
    return tuple(basis for basis in Basis if basis in bases)
