"""Conditions on a result."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.gates import evaluate, parse_gate
from k31ctl.errors import UsageError

RESULT = {"fits": True, "capacity": {"tokens": 8, "pool_bytes": 5}, "memory": {"pool_bytes": 7}}


@pytest.mark.parametrize(
    ("gate", "passed"),
    [
        ("fits==true", True),
        ("fits == false", False),
        ("capacity.tokens>=8", True),
        ("tokens>8", False),
        ("tokens<=8.5", True),
        ("memory.pool_bytes!=5", True),
        ("tokens<1e3", True),
    ],
)
def test_a_gate_compares_a_name_of_the_result(gate: str, passed: bool) -> None:
    assert evaluate(parse_gate(gate), RESULT).passed is passed


@pytest.mark.parametrize("gate", ["", "fits", "fits=true", "fits==yes", "x>=nan", ">=1", "a b>1"])
def test_what_is_no_gate_is_a_usage_error(gate: str) -> None:
    with pytest.raises(UsageError, match="not a gate"):
        parse_gate(gate)


@pytest.mark.parametrize(
    ("gate", "why"),
    [
        ("pool_bytes>1", "more than once"),
        ("speed>1", "not a number"),
        ("fits<=1", "true or false"),
        ("fits==2", "true or false"),
    ],
)
def test_a_name_that_is_not_one_number_is_a_usage_error(gate: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        evaluate(parse_gate(gate), RESULT)


@given(value=st.integers(-(10**9), 10**9), limit=st.integers(-(10**9), 10**9))
def test_at_most_and_more_than_exclude_each_other(value: int, limit: int) -> None:
    result = {"x": value}
    at_most = evaluate(parse_gate(f"x<={limit}"), result) if limit >= 0 else None
    more = evaluate(parse_gate(f"x>{limit}"), result) if limit >= 0 else None
    assert at_most is None or more is None or at_most.passed is not more.passed


SPEED = {
    "performance": {"tpot_s": 0.01, "output_tok_s": 90.0},
    "simulation": {"output_tok_s": 95.0, "goodput": {"met": True}},
    "cost": {
        "usd_per_m_output_tokens": 3.0,
        "num_gpus": 8,
        "api": {"usd_per_m_output_tokens": 15.0, "usd_per_hour": 2.0},
    },
    "layout": {"num_gpus": 16},
}


@pytest.mark.parametrize(
    ("gate", "actual"),
    [
        ("tpot_s<=0.05", 0.01),
        ("output_tok_s>=1", 90.0),
        ("simulation.output_tok_s>=1", 95.0),
        ("usd_per_m_output_tokens<=4", 3.0),
        ("api.usd_per_m_output_tokens<=4", 15.0),
        ("usd_per_hour>=1", 2.0),
        ("met==true", 1.0),
    ],
)
def test_a_short_name_means_what_performance_and_cost_say_themselves(
    gate: str, actual: float
) -> None:
    assert evaluate(parse_gate(gate), SPEED).actual == actual


def test_a_short_name_of_two_sections_stays_unclear() -> None:
    with pytest.raises(UsageError, match="more than once"):
        evaluate(parse_gate("num_gpus>=8"), SPEED)


@pytest.mark.parametrize(
    ("gate", "told"),
    [("fits==false", "true"), ("tokens>8", "8"), ("memory.pool_bytes<1", "7")],
)
def test_what_a_gate_found_is_told_as_a_gate_writes_it(gate: str, told: str) -> None:
    assert evaluate(parse_gate(gate), RESULT).actual_text == told
