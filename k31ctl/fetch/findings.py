"""What can be wrong with a checkpoint on disk, and where exactly."""

from enum import StrEnum

from k31ctl.core.finding import Severity
from k31ctl.errors import UsageError
from k31ctl.values import frozen


class Level(StrEnum):
    """How deep one had to look."""

    SIZES = "sizes"
    DIGESTS = "digests"
    STRUCTURE = "structure"
    VALUES = "values"


@frozen
class Finding:
    """One fault: ``start`` and ``end`` are bytes of the file, where they are known."""

    level: Level
    file: str
    problem: str
    severity: Severity = Severity.ERROR
    tensor: str | None = None
    start: int | None = None
    end: int | None = None


def deepest_of(*, sizes: bool, deep: bool) -> Level:
    """The deepest level that the options ask for; raises UsageError for both at once."""
    if sizes and deep:
        raise UsageError(
            "sizes only and every value exclude each other",
            where="--sizes, --deep",
            remedy="give one of them, or none",
        )
    if sizes:
        return Level.SIZES
    return Level.VALUES if deep else Level.STRUCTURE
