"""The points of a set that no other point beats in both of two values."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def front(points: Sequence[T], values: Callable[[T], tuple[float, float]]) -> tuple[T, ...]:
    """Points that none beats, from the largest first value down; larger is better in both.

    Of points that are equal in both values the first stays. Takes n log n steps.
    """
    marked = [(*values(point), -place) for place, point in enumerate(points)]
    marked.sort(reverse=True)
    found, highest = [], float("-inf")
    for _, second, place in marked:
        if second > highest:
            highest = second
            found.append(points[-place])
    return tuple(found)
