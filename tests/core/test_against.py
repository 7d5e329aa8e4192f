"""Measurements held against a plan: ratios, bands, and the term that is named."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.against import Against, against
from k31ctl.core.deployed import Deployed
from k31ctl.core.observed import Observed, Sums, observed
from k31ctl.core.step import StepModel
from k31ctl.core.suspect import Term, slowed
from tests.core.observations import deployment_of, load, seen

B300 = deployment_of()
TWO_NODES = deployment_of(on="8x-h200", engine="vllm", nodes=2)
SWEEP = tuple(load(users, prompt) for users in (1, 8, 64) for prompt in (1024, 16_384))


def held(where: Deployed, *stages: Observed) -> Against:
    return against(where, stages, random=Random(0), seed=0)


def slower(where: Deployed, term: Term, factor: float) -> StepModel:
    step = where.case.step(where.parts.speed)
    return StepModel(step.counted, slowed(step.rates, term, factor), step.replica)


def test_what_is_as_planned_has_ratio_1_and_nothing_off() -> None:
    step = B300.case.step(B300.parts.speed)
    found = held(B300, *(seen(B300, step, each) for each in SWEEP))
    assert all(f.ratio == pytest.approx(1) and f.within for s in found.stages for f in s.figures)
    assert found.suspicion.likely == ()
    assert found.suspicion.text.startswith("none")


@pytest.mark.parametrize("term", [Term.MEMORY, Term.COMPUTE, Term.OVERHEAD])
@settings(max_examples=10)
@given(factor=st.floats(2.5, 6.0))
def test_a_term_that_is_slower_is_named(term: Term, factor: float) -> None:
    step = slower(B300, term, factor)
    found = held(B300, *(seen(B300, step, each) for each in SWEEP)).suspicion
    assert found.likely[0] is term
    assert found.candidates[0].factor == pytest.approx(factor, rel=0.15)
    assert found.candidates[0].explained > 0.9


def test_a_slow_link_is_named_where_ranks_talk_over_one() -> None:
    step = slower(TWO_NODES, Term.LINK, 4.0)
    found = held(TWO_NODES, *(seen(TWO_NODES, step, each) for each in SWEEP)).suspicion
    assert Term.LINK in found.likely


@pytest.mark.parametrize("told", [True, False])
def test_waiting_beside_the_steps_is_queueing(told: bool) -> None:
    step = B300.case.step(B300.parts.speed)
    stages = []
    for users in (1, 8, 64):
        each = load(users)
        as_planned = seen(B300, step, each)
        waited = 3 * as_planned.measured["e2e_s"] * (1 - 1 / users)
        stages.append(seen(B300, step, each, waited_s=waited, queue_s=waited if told else None))
    assert held(B300, *stages).suspicion.likely == (Term.QUEUEING,)


def test_one_load_names_all_terms_that_could_be_it() -> None:
    one = load(1, prompt=16, output=512)
    step = slower(B300, Term.OVERHEAD, 3.0)
    found = held(B300, seen(B300, step, one)).suspicion
    assert len(found.likely) > 1
    assert " or " in found.text


def test_a_stage_that_failed_is_told_and_not_held() -> None:
    step = B300.case.step(B300.parts.speed)
    good = seen(B300, step, load(8))
    bad = replace(good, why_not="the client did not keep up")
    found = held(B300, bad, good)
    assert found.stages[0].figures == ()
    assert found.stages[1].figures
    assert "closed loop that is valid" in held(B300, bad).suspicion.text


def test_a_load_that_the_deployment_cannot_serve_is_told() -> None:
    step = B300.case.step(B300.parts.speed)
    good = seen(B300, step, load(8))
    found = held(B300, replace(good, prompt_tokens=1 << 21), good)
    assert "serves no request of 2,097,408 tokens" in found.stages[0].observed.why_not
    assert found.stages[1].figures


def test_lengths_are_means_over_what_was_answered() -> None:
    found = observed(
        run="r",
        name="concurrency 2",
        concurrency=2,
        rate_per_s=None,
        requests=100,
        completed=100,
        tokens=Sums(prompt=50_000, cached=10_000, output=12_800),
        measured={"ttft_s": 0.5, "itl_s": None},
        queue_s=None,
        is_valid=True,
    )
    assert (found.prompt_tokens, found.output_tokens, found.why_not) == (500, 128, "")
    assert found.cached_fraction == pytest.approx(0.2)
    assert found.measured == {"ttft_s": 0.5}


@pytest.mark.parametrize(
    ("completed", "is_valid", "words"),
    [(0, True, "no request"), (90, True, "10.0% of the requests failed"), (100, False, "keep up")],
)
def test_what_teaches_nothing_says_why(completed: int, is_valid: bool, words: str) -> None:
    found = observed(
        run="r",
        name="concurrency 2",
        concurrency=2,
        rate_per_s=None,
        requests=100,
        completed=completed,
        tokens=Sums(prompt=100 * completed, cached=None, output=10 * completed),
        measured={},
        queue_s=None,
        is_valid=is_valid,
    )
    assert words in found.why_not
