"""Laws of a search, and searches small enough to go through by hand."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.deployment import cell_of, deployment
from k31ctl.core.goal import Goal
from k31ctl.core.goals import recommended
from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.latencies import latency_s
from k31ctl.core.offload import Tier
from k31ctl.core.performance import performance
from k31ctl.core.search import Candidate, search, usd_per_m_output_tokens
from k31ctl.core.slo import parse_slo
from k31ctl.errors import RefusedError, UsageError
from tests.core.deployments import speed
from tests.core.searches import found, load, space

SYSTEMS = ("8x-b300", "8x-h200", "4x-gb300", "8x-mi355x")


def score(candidate: Candidate, goal: Goal) -> float:
    match goal:
        case Goal.THROUGHPUT:
            return candidate.output_tok_s_per_gpu
        case Goal.LATENCY:
            return -candidate.tpot_s
        case Goal.COST:
            return -(candidate.usd_per_m_total_tokens or 0.0)
        case Goal.CONTEXT:
            return candidate.option.longest_context


def test_a_candidate_is_what_the_whole_model_says_of_it() -> None:
    for candidate in found("8x-b300").loads[0].candidates[::17]:
        option = candidate.option
        length = candidate.workload.prompt_tokens + candidate.workload.output_tokens
        whole = performance(
            option.case,
            option.case.step(speed()),
            speed(),
            candidate.workload,
            most_running=option.pool.max_requests(length),
        )
        assert candidate.ttft_s == pytest.approx(whole.ttft_s.value, rel=1e-9)
        assert candidate.tpot_s == pytest.approx(whole.tpot_s.value, rel=1e-9)
        assert candidate.output_tok_s == pytest.approx(whole.output_tok_s.value, rel=1e-9)


def test_a_candidate_fits_as_its_plan_says() -> None:
    for candidate in found("8x-b300").loads[0].candidates[::17]:
        option = candidate.option
        built = deployment(option.parts, option.request)
        assert built.layout == option.layout
        length = candidate.workload.prompt_tokens + candidate.workload.output_tokens
        assert cell_of(option.parts, built, length, candidate.concurrency).fits


def test_cost_is_the_price_of_the_gpus_over_all_their_tokens() -> None:
    candidate = found("8x-b300").loads[0].candidates[0]
    load = candidate.workload
    # $6 an hour for each GPU over 3,600 seconds of tokens written, and those read for each of them.
    per_output = 6.0 * 1e6 / (candidate.output_tok_s_per_gpu * 3600)
    expected = per_output * load.output_tokens / (load.prompt_tokens + load.output_tokens)
    assert candidate.usd_per_m_total_tokens == pytest.approx(expected)


def test_an_output_token_pays_for_the_time_of_decoding_alone() -> None:
    candidate = found("8x-b300").loads[0].candidates[0]
    service = candidate.service
    hourly = 6.0 * 1e6 / (candidate.output_tok_s_per_gpu * 3600)
    decoding = 1 - service.prefill_s / service.period_s
    assert usd_per_m_output_tokens(candidate) == pytest.approx(hourly * decoding)


def test_without_a_price_there_is_no_cost() -> None:
    result = search(space("8x-b300", priced=False))
    assert recommended(result.loads[0], Goal.COST) is None
    assert result.loads[0].cost_front == ()


def test_nothing_beats_the_front_and_all_else_is_beaten() -> None:
    for result in (found(*SYSTEMS), found(*SYSTEMS, slo="tpot_p99_s<=0.05")):
        for answer in result.loads:
            front = {(c.output_tok_s_per_gpu, c.tok_s_per_user) for c in answer.speed_front}
            for c in answer.kept:
                point = (c.output_tok_s_per_gpu, c.tok_s_per_user)
                assert point in front or any(
                    other[0] >= point[0] and other[1] >= point[1] for other in front
                )


@pytest.mark.parametrize("goal", Goal)
def test_the_best_of_each_goal_is_the_best_there_is(goal: Goal) -> None:
    answer = found(*SYSTEMS).loads[0]
    best = recommended(answer, goal)
    assert best is not None
    assert score(best, goal) == max(score(c, goal) for c in answer.kept)


@pytest.mark.parametrize("goal", Goal)
@settings(deadline=None, max_examples=8)
@given(
    known=st.lists(st.sampled_from(SYSTEMS), min_size=1, max_size=3, unique=True),
    new=st.sampled_from(SYSTEMS),
)
def test_another_system_never_makes_it_worse(goal: Goal, known: list[str], new: str) -> None:
    before = recommended(found(*sorted(known)).loads[0], goal)
    after = recommended(found(*sorted({*known, new})).loads[0], goal)
    assert before is not None and after is not None
    assert score(after, goal) >= score(before, goal)


@pytest.mark.parametrize("goal", Goal)
@settings(deadline=None, max_examples=10)
@given(ttft=st.floats(0.5, 60), tpot=st.floats(0.02, 0.5), tighter=st.floats(0.5, 1))
def test_tighter_limits_never_make_it_better(
    goal: Goal, ttft: float, tpot: float, tighter: float
) -> None:
    loose = found("8x-b300", slo=f"ttft_p99_s<={ttft},tpot_p99_s<={tpot}")
    tight = found("8x-b300", slo=f"ttft_p99_s<={ttft * tighter},tpot_p99_s<={tpot * tighter}")
    before, after = (recommended(result.loads[0], goal) for result in (loose, tight))
    assert after is None or (before is not None and score(after, goal) <= score(before, goal))


def test_what_is_recommended_keeps_its_limits() -> None:
    slo = parse_slo("ttft_p99_s<=5,tpot_p99_s<=0.05")
    answer = search(space(*SYSTEMS), slo=slo).loads[0]
    for candidate in (*answer.kept, *answer.speed_front, *answer.cost_front):
        for limit in slo.limits:
            value = latency_s(candidate.service, limit, output_tokens=1024)
            assert value is not None and value <= limit.at_most_s


def test_the_same_search_twice_is_the_same() -> None:
    one, other = search(space(*SYSTEMS)), search(space(*SYSTEMS))
    assert one.refused == other.refused
    for mine, theirs in zip(one.loads, other.loads, strict=True):
        assert [c[1:] for c in mine.candidates] == [c[1:] for c in theirs.candidates]
        assert [c.option.text for c in mine.kept] == [c.option.text for c in theirs.kept]


def test_sizes_that_were_asked_for_are_kept() -> None:
    result = search(space("8x-b300", tp=8, counts=(1,)))
    layouts = {c.option.layout.text for c in result.loads[0].candidates}
    assert layouts == {
        f"TP8{ep}{dcp}" for ep in ("", "xEP8") for dcp in ("", "xDCP2", "xDCP4", "xDCP8")
    }


def test_what_an_engine_refuses_is_counted_by_rule() -> None:
    result = search(space("gb300-nvl72", counts=(1,), concurrencies=(64,)))
    # 72 = 9 x 8, and 9 divides no number of heads here.
    assert result.refused["layout-heads"] > 0


def test_a_cache_type_that_an_engine_lacks_is_counted() -> None:
    result = search(space("8x-b300", kv=(None, KvFormat.NVFP4_DS_MLA), engines=("sglang",)))
    assert result.refused["cache-dtype"] > 0


def test_where_nothing_fits_it_says_why() -> None:
    with pytest.raises(RefusedError, match="the weights do not load") as refused:
        search(space("8x-h100", counts=(1,)))
    assert "--max-nodes" in refused.value.remedy


def test_a_longer_load_than_the_model_takes_is_refused() -> None:
    with pytest.raises(UsageError, match="beyond the 1,048,576"):
        search(space("8x-b300", loads=(load(prompt=1 << 20),)))


def test_experts_off_the_gpus_are_not_searched() -> None:
    one = space("8x-b300")
    with pytest.raises(UsageError, match="link decides"):
        search(replace(one, base=replace(one.base, offload=Tier.HOST)))
