"""Why something is recommended, and what is said where nothing can be."""

import re

import pytest

from k31ctl.core.goal import Goal
from k31ctl.core.goals import recommendations
from k31ctl.core.search import search
from k31ctl.core.searched import searched
from k31ctl.core.slo import parse_slo
from k31ctl.core.unreachable import rounded_up
from k31ctl.errors import RefusedError, UsageError
from tests.core.searches import found, load, space


def test_the_runner_up_is_another_layout_or_hardware() -> None:
    for made in recommendations(found("8x-b300", "8x-h200").loads[0]):
        assert made.runner_up is not None
        assert made.runner_up.option.place != made.chosen.option.place


def test_elsewhere_is_other_hardware() -> None:
    for made in recommendations(found("8x-b300", "8x-h200").loads[0]):
        assert made.elsewhere is not None
        assert made.elsewhere.option.parts.node.id != made.chosen.option.parts.node.id


@pytest.mark.parametrize("slo", ["", "ttft_p99_s<=5,tpot_p99_s<=0.05"])
def test_each_reason_names_the_runner_up_and_has_a_number(slo: str) -> None:
    for made in recommendations(found("8x-b300", "8x-h200", slo=slo).loads[0]):
        assert made.runner_up is not None
        assert made.runner_up.option.text in made.because
        assert re.search(r"\d", made.because)


def test_a_lead_is_the_ratio_of_both_values() -> None:
    made = recommendations(found("8x-b300", "8x-h200").loads[0])[0]
    assert made.goal is Goal.THROUGHPUT and made.runner_up is not None
    ahead = made.chosen.output_tok_s_per_gpu / made.runner_up.output_tok_s_per_gpu - 1
    percent = re.match(r"([\d.]+) % more tokens/s per GPU than ", made.because)
    assert percent is not None
    assert float(percent[1]) == pytest.approx(100 * ahead, abs=0.51)


def test_one_layout_alone_has_no_runner_up() -> None:
    result = search(space("8x-b300", counts=(1,), tp=8, ep=1, dcp=1))
    made = recommendations(result.loads[0])[0]
    assert (made.runner_up, made.elsewhere) == (None, None)
    assert made.because == "no other layout or hardware keeps to what was asked"


def test_a_limit_that_nothing_keeps_is_named_with_the_least_there_is() -> None:
    with pytest.raises(RefusedError, match=r"tpot_p99_s <= 0.001 cannot be met") as refused:
        searched(space("8x-b300"), slo=parse_slo("ttft_p99_s<=60,tpot_p99_s<=0.001"))
    assert refused.value.rule == "slo-unreachable"
    relaxed = re.search(r"--slo '(.*?)'", refused.value.remedy)
    assert relaxed is not None
    assert searched(space("8x-b300"), slo=parse_slo(relaxed[1])).loads[0].recommendations


def test_limits_that_cannot_be_kept_together_are_told_so() -> None:
    least = min(c.tpot_s for c in found("8x-b300").loads[0].candidates)
    quickest = min(c.ttft_s for c in found("8x-b300").loads[0].candidates)
    text = f"tpot_mean_s<={least * 1.001},ttft_mean_s<={quickest * 1.001}"
    with pytest.raises(RefusedError) as refused:
        searched(space("8x-b300"), slo=parse_slo(text))
    assert "with the other limits kept" in refused.value.what
    relaxed = re.search(r"--slo '(.*?)'", refused.value.remedy)
    assert relaxed is not None
    assert searched(space("8x-b300"), slo=parse_slo(relaxed[1])).loads[0].recommendations


def test_a_load_that_cannot_keep_the_limits_does_not_hide_one_that_can() -> None:
    loads = (load(), load(prompt=900_000))
    answer = searched(space("8x-b300", loads=loads), slo=parse_slo("ttft_p99_s<=5"))
    assert answer.loads[0].recommendations and not answer.loads[1].recommendations
    assert answer.loads[1].why_not


def test_cost_as_the_goal_needs_a_price() -> None:
    with pytest.raises(UsageError, match="no system of this search has a price"):
        searched(space("8x-b300", priced=False), goal=Goal.COST)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.00866, 0.0087), (3.0, 3.0), (12.1, 13.0), (99.5, 100.0), (0.0, 0.0), (0.41, 0.41)],
)
def test_two_digits_never_below_the_value(value: float, expected: float) -> None:
    assert rounded_up(value) == pytest.approx(expected)
    assert rounded_up(value) >= value
