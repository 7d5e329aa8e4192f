import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.ladder import RUNGS, Measure, Status, Step, first_broken, is_green, measure


def step(status: Status) -> Step:
    return Step(id="files", name="files", status=status, seconds=0.0, detail="")


@pytest.mark.parametrize(
    ("value", "at_least", "at_most", "holds"),
    [
        (1.0, None, None, True),
        (1.0, None, 1.0, True),
        (1.1, None, 1.0, False),
        (0.9, 1.0, None, False),
        (1.0, 0.95, 1.05, True),
        (math.nan, None, 1.0, False),
        (math.inf, 1.0, None, False),
        (math.nan, None, None, True),
    ],
)
def test_a_number_holds_within_its_bounds(
    value: float, at_least: float | None, at_most: float | None, holds: bool
) -> None:
    assert measure("error", value, at_least=at_least, at_most=at_most).holds is holds


@given(st.floats())
def test_a_number_that_is_none_is_told_as_none(value: float) -> None:
    found = measure("error", value).value
    assert found == (value if math.isfinite(value) else None)


def test_the_first_number_outside_its_bounds_is_found() -> None:
    numbers = tuple(
        Measure(name=name, value=value, at_most=1.0)
        for name, value in (("a", 0), ("b", 2), ("c", 3))
    )
    assert first_broken(numbers) == numbers[1]
    assert first_broken(numbers[:1]) is None


@pytest.mark.parametrize(
    ("statuses", "green"),
    [
        ((Status.PASS, Status.SKIP), True),
        ((Status.PASS, Status.FAIL), False),
        ((Status.SKIP,), False),
        ((), False),
    ],
)
def test_green_is_no_failure_and_something_that_passed(
    statuses: tuple[Status, ...], green: bool
) -> None:
    assert is_green(tuple(map(step, statuses))) is green


def test_every_step_has_a_name_of_its_own_and_patience() -> None:
    assert len({rung.id for rung in RUNGS}) == len(RUNGS)
    assert all(rung.timeout_s > 0 for rung in RUNGS)
