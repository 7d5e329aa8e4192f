"""A front holds what nothing beats, and something at least as good as everything else."""

from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.pareto import front

POINTS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=60)


def beats(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one != other and one[0] >= other[0] and one[1] >= other[1]


def whole(point: tuple[int, int]) -> tuple[float, float]:
    return point


def test_the_front_of_five_points_by_hand() -> None:
    points = [(1, 5), (2, 4), (2, 3), (3, 1), (0, 5)]
    assert front(points, whole) == ((3, 1), (2, 4), (1, 5))


def test_of_equal_points_the_first_stays() -> None:
    points = [("a", 1, 1), ("b", 1, 1)]
    assert front(points, lambda p: (p[1], p[2])) == (("a", 1, 1),)


@given(POINTS)
def test_nothing_beats_a_point_of_the_front(points: list[tuple[int, int]]) -> None:
    for point in front(points, whole):
        assert not any(beats(other, point) for other in points)


@given(POINTS)
def test_every_other_point_is_beaten_or_there_already(points: list[tuple[int, int]]) -> None:
    best = front(points, whole)
    for point in points:
        assert point in best or any(beats(other, point) for other in best)
