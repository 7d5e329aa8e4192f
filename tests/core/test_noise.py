"""Student's t, the tests of changes, and how they are adjusted for being many."""

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.noise import adjusted, change_between, detectable, difference_between
from k31ctl.core.student import student_quantile, student_tail

FIGURES = st.lists(st.floats(0.001, 1000), min_size=2, max_size=8)


@pytest.mark.parametrize(
    ("tail", "degrees", "quantile"),
    [
        # Table 26.10 of Abramowitz and Stegun, and the closed form tan(pi (1/2 - tail)) at 1.
        (0.025, 1, 12.706),
        (0.025, 4, 2.776),
        (0.025, 8, 2.306),
        (0.005, 8, 3.355),
        (0.0005, 4, 8.610),
        (0.1, 30, 1.310),
        (0.975, 8, -2.306),
        (0.025, 1e6, 1.960),
    ],
)
def test_quantiles_are_those_of_the_tables(tail: float, degrees: float, quantile: float) -> None:
    assert student_quantile(tail, degrees=degrees) == pytest.approx(quantile, abs=5e-4)


@given(st.floats(1e-6, 0.5), st.floats(1, 200))
def test_a_quantile_has_its_tail_above_it(tail: float, degrees: float) -> None:
    t = student_quantile(tail, degrees=degrees)
    assert student_tail(t, degrees=degrees) == pytest.approx(tail, rel=1e-9)


def test_far_tails_are_nothing_or_all() -> None:
    assert (student_tail(inf, degrees=3), student_tail(-inf, degrees=3)) == (0, 1)
    assert student_tail(0, degrees=3) == pytest.approx(0.5)


def test_a_tail_is_between_0_and_1() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        student_quantile(0, degrees=3)


def test_welch_is_as_worked_by_hand() -> None:
    # Logarithms of base 2: 0, 1, 2 and 2, 3, 4: difference 2, variances 1, error sqrt(2 / 3)
    found = change_between([1, 2, 4], [4, 8, 16], between_runs=0)
    assert found is not None
    assert [found.before, found.after] == pytest.approx([2, 8])
    assert found.change == pytest.approx(3)
    assert found.degrees == pytest.approx(4)
    assert found.p == pytest.approx(2 * student_tail(6**0.5, degrees=4))


def test_the_noise_between_runs_widens_what_repeats_show() -> None:
    few, many = ([1.0, 1.001, 0.999], [1.01, 1.011, 1.009])
    alone = change_between(few, many, between_runs=0)
    beside = change_between(few, many, between_runs=0.02)
    assert alone and beside and alone.p is not None and beside.p is not None
    assert alone.p < 0.01
    assert beside.p > 0.5
    assert alone.change == beside.change


def test_one_disturbed_repeat_does_not_hide_a_change() -> None:
    before, after = [10, 10.1, 9.9, 10, 10.05], [11, 11.1, 10.9, 11.05, 40]
    found = change_between(before, after, between_runs=0.005)
    assert found is not None and found.p is not None
    assert found.is_trimmed
    assert found.p < 0.001
    assert found.change == pytest.approx(0.1, abs=0.01)


@given(FIGURES, FIGURES, st.floats(0.01, 100))
def test_the_unit_of_a_figure_does_not_matter(a: list[float], b: list[float], k: float) -> None:
    one = change_between(a, b, between_runs=0.01)
    other = change_between([k * x for x in a], [k * x for x in b], between_runs=0.01)
    assert one and other
    assert other.p == pytest.approx(one.p, rel=1e-6, abs=1e-12)


@given(FIGURES, FIGURES)
def test_turned_around_a_change_is_as_likely(a: list[float], b: list[float]) -> None:
    there, back = (change_between(x, y, between_runs=0.01) for x, y in ((a, b), (b, a)))
    assert there and back
    assert back.p == pytest.approx(there.p, rel=1e-6, abs=1e-12)
    if there.is_trimmed == back.is_trimmed:
        assert (1 + there.change) * (1 + back.change) == pytest.approx(1)


def test_a_single_repeat_tells_a_change_but_not_its_noise() -> None:
    found = change_between([2.0], [3.0], between_runs=0.01)
    assert found is not None
    assert found.change == pytest.approx(0.5)
    assert (found.p, found.low) == (None, None)
    assert detectable(found, alpha=0.01, power=0.9, at_least=0.02, num_tests=1) is None


def test_what_falls_to_nothing_is_a_change_of_all_of_it() -> None:
    found = change_between([5.0, 5.1, 4.9], [0.0, 0.0, 0.0], between_runs=0.005)
    assert found is not None and found.p is not None
    assert not found.is_ratio
    assert found.change == pytest.approx(-1)
    assert found.p < 0.001


def test_there_is_no_part_of_nothing() -> None:
    assert change_between([0.0, 0.0], [1.0, 1.0], between_runs=0.005) is None
    assert change_between([], [1.0], between_runs=0.005) is None


def test_shares_differ_by_points() -> None:
    found = difference_between([0.0, 0.0], [0.03, 0.05], between_runs=0.0)
    assert found is not None
    assert found.change == pytest.approx(0.04)


def test_equal_figures_without_noise_are_no_change_and_others_are_one() -> None:
    same = change_between([1.0, 1.0], [1.0, 1.0], between_runs=0)
    other = change_between([1.0, 1.0], [2.0, 2.0], between_runs=0)
    assert same and other
    assert (same.p, other.p) == (1, 0)


def test_probabilities_are_adjusted_as_worked_by_hand() -> None:
    # 0.01 x 4, then 0.02 x 3, then max(0.06, 0.03 x 2), then max(0.06, 0.5)
    assert adjusted([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_adjusting_keeps_the_order_and_never_lowers(ps: list[float]) -> None:
    found = adjusted(ps)
    assert all(p <= q <= 1 for p, q in zip(ps, found, strict=True))
    assert [q for _, q in sorted(zip(ps, found, strict=True))] == sorted(found)


def test_a_change_is_told_about_as_often_as_promised() -> None:
    random = Random(7)

    def repeats(mean: float) -> list[float]:
        return [random.gauss(mean, 0.01) for _ in range(5)]

    same = [change_between(repeats(1), repeats(1), between_runs=0.005) for _ in range(100)]
    promised = [detectable(c, alpha=0.01, power=0.9, at_least=0.02, num_tests=7) for c in same if c]
    size = sum(p for p in promised if p is not None) / len(promised)
    found = [change_between(repeats(1), repeats(1 + size), between_runs=0.005) for _ in range(200)]
    told = sum(c is not None and c.p is not None and c.p <= 0.01 / 7 for c in found)
    assert 0.02 < size < 0.1
    assert 0.8 <= told / 200 <= 1
