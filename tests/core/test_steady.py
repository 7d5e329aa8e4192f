"""Where a start ends, and what is a drift."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.steady import FEWEST, steadiness


def noisy(values: list[float], seed: int = 1) -> list[float]:
    random = Random(seed)
    return [value * (1 + random.gauss(0, 0.01)) for value in values]


def test_a_level_figure_is_steady_from_its_start() -> None:
    found = steadiness(noisy([100.0] * 24))
    assert found is not None
    assert found.is_steady
    assert abs(found.drift) < 0.02


def test_a_slow_start_is_left_out() -> None:
    found = steadiness(noisy([10.0, 40.0, 70.0, 90.0] + [100.0] * 20))
    assert found is not None
    assert 3 <= found.settled_after <= 5
    assert found.is_steady


def test_what_sinks_all_the_time_is_not_steady() -> None:
    found = steadiness(noisy([100.0 - n for n in range(24)]))
    assert found is not None
    assert not found.is_steady
    assert found.drift < -0.05


def test_what_is_still_rising_at_half_of_the_time_is_not_steady() -> None:
    found = steadiness([float(min(n, 14)) + 1 for n in range(24)])
    assert found is not None
    assert not found.is_steady


def test_level_figures_are_rarely_called_drifting() -> None:
    found = [steadiness(noisy([100.0] * 24, seed)) for seed in range(200)]
    assert sum(each is not None and not each.is_steady for each in found) <= 4


@given(st.lists(st.floats(0, 1e6), max_size=30), st.floats(0.01, 100))
def test_the_unit_of_a_figure_does_not_matter(values: list[float], k: float) -> None:
    one, other = steadiness(values), steadiness([k * value for value in values])
    assert (one is None) == (other is None)
    assert len(values) >= FEWEST or one is None
