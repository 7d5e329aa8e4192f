import random
from collections.abc import Callable
from itertools import pairwise
from statistics import fmean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.arrivals import (
    ClosedLoop,
    OpenLoop,
    constant_arrivals,
    gamma_arrivals,
    poisson_arrivals,
    ramp_times,
    request_sizes,
)
from k31ctl.core.served import percentile, statistics
from k31ctl.core.workload import Workload
from tests.core.services import at, size, users


def gaps(load: OpenLoop) -> list[float]:
    return [b.arrival_s - a.arrival_s for a, b in pairwise(load.arrivals)]


def test_constant_arrivals_are_as_far_apart_as_the_rate_says() -> None:
    load = constant_arrivals([size(1, 1)] * 4, rate_per_s=4.0)
    assert [arrival.arrival_s for arrival in load.arrivals] == [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_the_mean_of_the_rate_and_a_variance_of_one_over_shape(
    shape: float,
) -> None:
    draws = random.Random(11)
    found = gaps(gamma_arrivals([size(1, 1)] * 40_000, rate_per_s=5, shape=shape, random=draws))
    assert fmean(found) == pytest.approx(0.2, rel=0.03)
    assert pvariance(found) / 0.2**2 == pytest.approx(1 / shape, rel=0.06)


def test_poisson_gaps_are_exponential() -> None:
    draws = random.Random(12)
    found = gaps(poisson_arrivals([size(1, 1)] * 40_000, rate_per_s=1, random=draws))
    # Half of them below ln 2, one in ten above ln 10.
    assert sum(gap < 0.693147 for gap in found) / 40_000 == pytest.approx(0.5, abs=0.01)
    assert sum(gap > 2.302585 for gap in found) / 40_000 == pytest.approx(0.1, abs=0.005)


@given(spread=st.floats(0, 1), seed=st.integers(0, 99))
def test_sizes_lie_within_the_spread(spread: float, seed: int) -> None:
    workload = Workload(
        prompt_tokens=1000, output_tokens=100, cached_fraction=0.5, concurrency=1, rate_per_s=None
    )
    found = request_sizes(
        workload, num_requests=50, spread_fraction=spread, random=random.Random(seed)
    )
    assert all(abs(one.prompt_tokens - 1000) <= 1000 * spread + 1 for one in found)
    assert all(abs(one.output_tokens - 100) <= 100 * spread + 1 for one in found)
    assert all(abs(one.cached_tokens - one.prompt_tokens / 2) <= 1 for one in found)


def test_without_a_spread_all_requests_are_the_workload_s() -> None:
    workload = Workload(
        prompt_tokens=10, output_tokens=3, cached_fraction=0.2, concurrency=1, rate_per_s=None
    )
    found = request_sizes(workload, num_requests=2, spread_fraction=0, random=random.Random(1))
    assert found == (size(10, 3, 2), size(10, 3, 2))


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(0, 1.0), (50, 2.5), (90, 3.7), (100, 4.0)],  # rank 0.9 x 3 = 2.7: 3 + 0.7
)
def test_percentiles_are_interpolated_between_ranks(percent: float, expected: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], percent) == pytest.approx(expected)


@given(values=st.lists(st.floats(0, 1e6), min_size=1))
def test_statistics_are_in_order(values: list[float]) -> None:
    found = statistics(values)
    assert found is not None
    assert found.p50_s <= found.p90_s <= found.p95_s <= found.p99_s <= found.max_s == max(values)
    assert found.mean_s == pytest.approx(fmean(values))


def test_no_value_has_no_statistics() -> None:
    assert statistics([]) is None


@pytest.mark.parametrize(
    "broken",
    [
        lambda: at((1.0, size(1, 1)), (0.0, size(1, 1))),
        lambda: OpenLoop(arrivals=()),
        lambda: users(0, [size(1, 1)]),
        lambda: ClosedLoop(sizes=(), num_users=1, think_s=0),
        lambda: users(1, [size(1, 1)], think_s=-1),
        lambda: size(1, 1, 1),
        lambda: size(0, 1),
        lambda: constant_arrivals([size(1, 1)], rate_per_s=0),
        lambda: gamma_arrivals([size(1, 1)], rate_per_s=1, shape=0, random=random.Random(1)),
    ],
)
def test_a_load_that_cannot_be_is_a_mistake_of_the_caller(broken: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"must be|needs"):
        broken()


def test_even_gaps_of_a_ramp_are_as_worked_by_hand() -> None:
    # From 1 to 3 a second in 4 s: t + t^2 / 4 requests so far, 8 in all.
    found = ramp_times(from_per_s=1, to_per_s=3, duration_s=4, shape=None, random=random.Random(0))
    assert len(found) == 8
    assert [t + t * t / 4 for t in found] == pytest.approx(list(range(8)))


@given(st.floats(0.1, 50), st.floats(0.1, 50), st.floats(1, 20), st.integers(0, 99))
def test_a_ramp_stays_in_its_time_and_in_order(
    first: float, last: float, duration_s: float, seed: int
) -> None:
    found = ramp_times(
        from_per_s=first, to_per_s=last, duration_s=duration_s, shape=1.0,
        random=random.Random(seed),
    )  # fmt: skip
    assert found[0] == 0
    assert found == sorted(found)
    assert found[-1] <= duration_s * (1 + 1e-9)


def test_a_ramp_brings_requests_at_the_rate_of_the_moment() -> None:
    found = ramp_times(
        from_per_s=10, to_per_s=1000, duration_s=100, shape=1.0, random=random.Random(3)
    )
    # In the second half 10 x 50 + 9.9 x (100^2 - 50^2) / 2 of them.
    assert sum(t > 50 for t in found) == pytest.approx(500 + 9.9 * 3750, rel=0.02)
    assert len(found) == pytest.approx(50_500, rel=0.02)


def test_a_ramp_has_rates_above_0() -> None:
    with pytest.raises(ValueError, match="above 0"):
        ramp_times(from_per_s=0, to_per_s=1, duration_s=1, shape=None, random=random.Random(0))
