"""JSON that others wrote: one value, or one kind of failure."""

import json
import math
from collections.abc import Callable
from typing import Any, Final

# What a float takes; a longer number is no count and no size of anything.
_MOST_DIGITS: Final = 308


def parsed(raw: str | bytes, *, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the value in ``raw``; ``pairs`` makes what an object's names and values are.

    Raises ValueError alone: also for text that is nested too deep, and for numbers that are not
    finite or that no float takes, which the standard reader lets through to whoever uses them.
    """
    try:
        return json.loads(
            raw,
            object_pairs_hook=pairs,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_whole,
        )
    except RecursionError:
        raise ValueError("nested too deep to read") from None


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:60]} is not a finite number")
    return value


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"{text[:60]}... is too large a number")
    return int(text)
