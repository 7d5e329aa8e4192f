"""Calibration: what was put in comes out, within what it says; what cannot be told is refused."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from math import exp, log
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.calibrate import Calibrated, SiteRun, calibrate
from k31ctl.core.calibration import Calibration
from k31ctl.core.deployed import Deployed, deployed
from k31ctl.core.learning import Lesson, at, prior_spread, touched
from k31ctl.core.observed import E2E, ITL, TTFT, Observed
from k31ctl.core.speed_parameters import SpeedParameters, tables
from k31ctl.core.workload import Workload
from k31ctl.errors import InputError, RefusedError
from tests.core.observations import deployment_of, load, seen

B300 = deployment_of()
TODAY = date(2026, 11, 29)
SWEEP = tuple(load(users, prompt) for users in (1, 4, 16, 64) for prompt in (64, 2048, 16_384))


def as_lesson(where: Deployed, each: Workload) -> Lesson:
    return Lesson(deployed=where, load=each, measured={}, name="")


def site(where: Deployed, seed: int) -> SpeedParameters:
    """Parameters of a site drawn from what is believed of sites."""
    random, speed = Random(seed), where.parts.speed
    names = touched(speed, [as_lesson(where, each) for each in SWEEP])
    return at(speed, names, [random.gauss(0, prior_spread(speed, name)) for name in names])


def measured(
    where: Deployed, truth: SpeedParameters, loads: Sequence[Workload], *, seed: int, noise: float
) -> list[Observed]:
    random = Random(seed)
    step = where.case.step(truth)
    return [seen(where, step, each, noise=lambda: exp(random.gauss(0, noise))) for each in loads]


def run_of(
    where: Deployed, stages: Sequence[Observed], name: str = "a run", longest: int | None = None
) -> SiteRun:
    return SiteRun(
        run=name,
        command="",
        server="",
        max_model_len=longest,
        deployed=where,
        stages=tuple(stages),
    )


def fitted(*runs: SiteRun) -> Calibrated:
    return calibrate(runs, B300.parts.speed, version="0", today=TODAY)


def errors(found: Calibrated, truth: SpeedParameters) -> list[float]:
    """How far each parameter is from the truth, in its spreads."""
    pairs = [(tables(found.parameters)[t][k], tables(truth)[t][k]) for t, k in found.changed]
    return [log(fit.value / true.value) / fit.spread for fit, true in pairs]


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_known_parameters_are_recovered_within_the_covariance(seed: int) -> None:
    truth = site(B300, seed)
    found = fitted(run_of(B300, measured(B300, truth, SWEEP, seed=seed, noise=0.02)))
    # A normal variable is beyond 4.5 once in 150,000 times.
    assert max(map(abs, errors(found, truth))) < 4.5


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_another_load_is_predicted_better_and_within_narrower_bands(seed: int) -> None:
    truth = site(B300, seed)
    found = fitted(run_of(B300, measured(B300, truth, SWEEP, seed=seed, noise=0.02)))
    other = load(24, 8000, 700)
    after = B300.performance(other, found.parameters)
    before = B300.performance(other)
    real = seen(B300, B300.case.step(truth), other).measured
    for quantity, said, was in (
        (ITL, after.itl_s, before.itl_s),
        (E2E, after.e2e_s, before.e2e_s),
        (TTFT, after.ttft_s, before.ttft_s),
    ):
        assert said.low <= real[quantity] <= said.high
        assert said.high / said.value < was.high / was.value
    assert after.e2e_s.value == pytest.approx(real[E2E], rel=0.1)


@pytest.mark.parametrize("times", [0.2, 5.0])
def test_a_few_wild_stages_do_not_move_the_fit(times: float) -> None:
    truth = site(B300, 3)
    stages = measured(B300, truth, SWEEP, seed=3, noise=0.02)
    good = fitted(run_of(B300, stages))
    wild = [
        replace(stage, measured={q: v * times for q, v in stage.measured.items()})
        if i in (2, 7)
        else stage
        for i, stage in enumerate(stages)
    ]
    found = fitted(run_of(B300, wild))
    assert {o.partition(":")[0] for o in found.calibration.outliers} == {
        f"{s.name}, {s.prompt_tokens:,} in, {s.output_tokens:,} out" for s in (wild[2], wild[7])
    }
    other = load(24, 8000, 700)
    as_good = B300.performance(other, good.parameters).e2e_s.value
    assert B300.performance(other, found.parameters).e2e_s.value == pytest.approx(as_good, rel=0.05)


@pytest.mark.parametrize("users", [1, 64])
def test_one_load_is_refused_and_the_loads_asked_for_are_enough(users: int) -> None:
    truth = site(B300, 1)
    loads = [load(users, 1024)]
    for _ in range(8):
        stages = measured(B300, truth, loads, seed=1, noise=0.02)
        try:
            fitted(run_of(B300, stages))
            break
        except RefusedError as refused:
            assert refused.exit_code == 4
            assert refused.rule == "calibrate-identify"
            loads += asked_for(refused.remedy)
    else:
        pytest.fail("measuring what was asked for is never enough")
    assert len(loads) > 1


@pytest.mark.parametrize(("longest", "prompts"), [(None, {16_384}), (4096, {2048}), (1500, {1024})])
def test_no_load_is_asked_for_that_the_server_would_refuse(
    longest: int | None, prompts: set[int]
) -> None:
    stages = measured(B300, site(B300, 5), [load(64, 1024)], seed=5, noise=0.02)
    with pytest.raises(RefusedError) as caught:
        fitted(run_of(B300, stages, longest=longest))
    assert {each.prompt_tokens for each in asked_for(caught.value.remedy)} == prompts


def asked_for(remedy: str) -> list[Workload]:
    words = remedy.replace(",", " ").split()
    named = [int(words[i + 1]) for i, word in enumerate(words) if word.startswith("--")]
    return [load(*named[i : i + 3]) for i in range(0, len(named), 3)]


def test_without_noise_in_abundance_the_truth_is_found() -> None:
    truth = site(B300, 4)
    found = fitted(run_of(B300, measured(B300, truth, SWEEP, seed=4, noise=0.0)))
    assert found.calibration.mean_error < 0.02


def test_a_load_measured_ten_times_counts_once() -> None:
    truth = site(B300, 2)
    stages = measured(B300, truth, SWEEP, seed=2, noise=0.0)
    once, tenfold = fitted(run_of(B300, stages)), fitted(run_of(B300, stages * 10))
    assert tenfold.calibration.num_loads == once.calibration.num_loads == len(SWEEP)
    for row, again in zip(once.calibration.covariance, tenfold.calibration.covariance, strict=True):
        assert again == pytest.approx(row)


def test_runs_of_several_layouts_are_fitted_together() -> None:
    two = deployment_of(nodes=2)
    truth = site(B300, 6)
    found = fitted(
        run_of(B300, measured(B300, truth, SWEEP, seed=6, noise=0.02), "one node"),
        run_of(two, measured(two, truth, SWEEP, seed=7, noise=0.02), "two nodes"),
    )
    assert [run.run for run in found.calibration.runs] == ["one node", "two nodes"]
    assert found.calibration.of.layouts == ("1 x 8x-b300, TP8", "2 x 8x-b300, TP16")


def test_runs_of_other_gpus_or_engines_are_refused() -> None:
    other = deployment_of(engine="vllm")
    truth = site(B300, 0)
    one = run_of(B300, measured(B300, truth, SWEEP, seed=0, noise=0.02))
    two = run_of(other, measured(other, truth, SWEEP, seed=0, noise=0.02))
    with pytest.raises(RefusedError, match="different engines: sglang, vllm"):
        fitted(one, two)


def test_stages_that_teach_nothing_are_told_and_alone_are_an_error() -> None:
    stages = measured(B300, site(B300, 0), SWEEP, seed=0, noise=0.02)
    bad = replace(stages[0], why_not="the client did not keep up")
    rate = replace(stages[1], concurrency=None, rate_per_s=1.0)
    found = fitted(run_of(B300, [bad, rate, *stages]))
    (run,) = found.calibration.runs
    assert [why.partition(": ")[2] for why in run.left_out] == [
        "the client did not keep up",
        "only closed loops are fitted",
    ]
    with pytest.raises(InputError, match="no stage can be fitted"):
        fitted(run_of(B300, [bad, rate]))


def test_a_fitted_parameter_that_errs_with_others_is_not_counted_alone() -> None:
    """What all fixed costs sum to is known far better than any of them."""
    truth = site(B300, 5)
    found = fitted(run_of(B300, measured(B300, truth, SWEEP, seed=5, noise=0.02)))
    alone = replace(
        found.calibration,
        covariance=tuple(
            tuple(value * (j == i) for j, value in enumerate(row))
            for i, row in enumerate(found.calibration.covariance)
        ),
    )
    together = B300.performance(load(1), found.parameters).itl_s
    apart = B300.performance(load(1), replace(found.parameters, calibration=alone)).itl_s
    assert together.high / together.value < 0.9 * apart.high / apart.value


def test_what_cannot_be_a_covariance_cannot_be_said() -> None:
    found = fitted(run_of(B300, measured(B300, site(B300, 0), SWEEP, seed=0, noise=0.02)))
    good: Calibration = found.calibration
    for covariance, words in (
        (good.covariance[:-1], "lower triangle"),
        ((*good.covariance[:-1], tuple(9.0 for _ in good.covariance[-1])), "positive definite"),
    ):
        with pytest.raises(ValueError, match=words):
            replace(good, covariance=covariance)
    with pytest.raises(ValueError, match="once each"):
        replace(good, parameters=(good.parameters[0],) * len(good.parameters))


def test_a_plan_may_be_made_of_the_fitted_parameters() -> None:
    found = fitted(run_of(B300, measured(B300, site(B300, 0), SWEEP, seed=0, noise=0.02)))
    again = deployed(replace(B300.parts, speed=found.parameters), B300.asked)
    assert again.performance(load(8)) == B300.performance(load(8), found.parameters)
