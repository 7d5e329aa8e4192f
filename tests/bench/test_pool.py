"""Percentiles of many numbers are exact, though they are on disk."""

import tracemalloc
from array import array
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.bench.pool import FloatPool


@given(st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=300))
def test_percentiles_are_those_of_numpy(values: list[float]) -> None:
    pool = FloatPool(BytesIO())
    pool.extend(array("f", values[:7]))
    pool.extend(array("f", values[7:]))
    found = pool.spread()
    assert found is not None
    expected = np.percentile(np.array(values, dtype=np.float64), [50, 90, 95, 99])
    assert [found.p50, found.p90, found.p95, found.p99] == pytest.approx(expected, rel=1e-12)
    assert found.mean == pytest.approx(sum(values) / len(values), rel=1e-12)
    assert (found.max, len(pool)) == (max(values), len(values))


def test_nothing_has_no_percentiles() -> None:
    assert FloatPool(BytesIO()).spread() is None


@pytest.mark.parametrize(
    "draw",
    [lambda random: random.lognormvariate(-4, 1), lambda random: random.uniform(0.01, 0.010001)],
    ids=["spread", "alike"],
)
def test_half_a_million_numbers_take_little_memory(
    tmp_path: Path, draw: Callable[[Random], float]
) -> None:
    random = Random(1)
    with (tmp_path / "pool").open("w+b") as file:
        pool = FloatPool(file)
        values = array("f", [draw(random) for _ in range(10_000)])
        tracemalloc.start()
        for _ in range(50):
            pool.extend(values)
        held, _ = tracemalloc.get_traced_memory()
        found = pool.spread()
        pool.curve(range(101))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert held < 1_000_000
    assert most < 16_000_000  # pieces of a megabyte and their counts, but not the numbers
    assert found is not None
    assert found.p50 == pytest.approx(np.median(values), rel=1e-3)


@given(st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=300))
def test_a_curve_is_within_a_part_in_500_of_the_values(values: list[float]) -> None:
    pool = FloatPool(BytesIO())
    pool.extend(array("f", values))
    found = pool.curve((0, 10, 50, 99, 100))
    ordered = sorted(values)
    ranks = [int(share / 100 * (len(values) - 1)) for share in (0, 10, 50, 99, 100)]
    assert list(found) == pytest.approx([ordered[rank] for rank in ranks], rel=2e-3, abs=1e-38)


def test_a_curve_of_nothing_is_nothing() -> None:
    assert FloatPool(BytesIO()).curve((50,)) == ()
