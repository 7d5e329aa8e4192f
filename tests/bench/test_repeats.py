"""Intervals over repeats are Student's at any number of them."""

from math import sqrt

import pytest

from k31ctl.bench.repeats import interval


@pytest.mark.parametrize(
    ("repeats", "t"),
    [
        (2, 12.706),
        (5, 2.776),
        (31, 2.042),
        (32, 2.040),
        (61, 2.000),
    ],  # printed tables, two-sided 95 %
)
def test_the_half_width_is_the_quantile_times_the_error_of_the_mean(repeats: int, t: float) -> None:
    values = [float(n) for n in range(repeats)]
    deviation = sqrt(repeats * (repeats + 1) / 12)  # of 0, 1, .. n - 1, with n - 1 below
    found = interval(values)
    assert found.mean == pytest.approx((repeats - 1) / 2)
    assert (found.high - found.mean) * sqrt(repeats) / deviation == pytest.approx(t, abs=6e-4)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)
