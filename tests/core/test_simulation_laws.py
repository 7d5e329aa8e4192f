"""Laws of queues and caches that hold for every load, and the fast way against the slow one."""

import random
from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.arrivals import (
    Load,
    RequestSize,
    constant_arrivals,
    gamma_arrivals,
    poisson_arrivals,
    request_sizes,
)
from k31ctl.core.batching import Batching, KvBudget, Policy
from k31ctl.core.served import Summary
from k31ctl.core.simulate import Simulation
from k31ctl.core.workload import Workload
from tests.core.services import ROOMY, STEADY, Line, Roof, at, batching, run, size, users

STEPPED = Roof(
    one=STEADY, other=Line(step=0.01, per_context_token=6e-7, per_prompt_token=4e-5), power=1.0
)
CURVED = Roof(
    one=Line(step=0.02, per_context_token=2e-7, per_prompt_token=4e-5),
    other=Line(step=0.001),
    power=0.9,
)

sizes = st.builds(size, st.integers(1, 3000), st.integers(1, 400), st.just(0)) | st.builds(
    lambda p, o: size(p, o, p // 2), st.integers(2, 3000), st.integers(1, 400)
)
rules = st.builds(
    batching,
    st.sampled_from(Policy),
    chunk_tokens=st.sampled_from((16, 512, 2048)),
    budget_per_decode=st.integers(0, 4),
    max_running=st.integers(1, 12),
    reserved_output_fraction=st.sampled_from((0.0, 0.5, 1.0)),
    tokens_per_step=st.sampled_from((1.0, 1.7, 3.0)),
)
caches = st.builds(
    KvBudget,
    total_units=st.integers(3500, 12_000),
    page_tokens=st.integers(1, 100),
    units_per_page=st.just(1),
    fixed_units=st.integers(0, 20),
)
loads = st.builds(
    users,
    st.integers(1, 10),
    st.lists(sizes, min_size=1, max_size=20),
    think_s=st.sampled_from((0.0, 0.7)),
) | st.lists(st.tuples(st.floats(0, 20), sizes), min_size=1, max_size=20).map(
    lambda rows: at(*sorted(rows, key=lambda row: row[0]))
)


def asked(load: Load) -> list[tuple[int, int]]:
    found: list[RequestSize] = getattr(load, "sizes", None) or [
        arrival.size for arrival in getattr(load, "arrivals", ())
    ]
    return sorted((one.prompt_tokens, one.output_tokens) for one in found)


@settings(deadline=None)
@given(load=loads, rule=rules, cache=caches)
def test_nothing_is_lost_and_the_cache_is_never_overcommitted(
    load: Load, rule: Batching, cache: KvBudget
) -> None:
    found = run(load, rules=rule, kv=cache)
    assert sorted((r.prompt_tokens, r.output_tokens) for r in found.records) == asked(load)
    assert 0 < found.summary.kv_peak_fraction <= 1
    assert all(r.arrival_s < r.first_token_s <= r.finish_s for r in found.records)
    assert rule.reserved_output_fraction < 1 or found.summary.preemptions == 0


@settings(deadline=None)
@given(load=loads, rule=rules, cache=caches)
def test_little_s_law_holds(load: Load, rule: Batching, cache: KvBudget) -> None:
    found = run(load, rules=rule, kv=cache).summary
    in_system = found.num_requests / found.duration_s * found.e2e.mean_s
    assert found.mean_running + found.mean_waiting == pytest.approx(in_system, rel=1e-9)


@settings(deadline=None)
@given(load=loads, rule=rules, cache=caches)
def test_tokens_never_come_faster_than_the_best_step_makes_them(
    load: Load, rule: Batching, cache: KvBudget
) -> None:
    found = run(load, rules=rule, kv=cache).summary
    best = STEADY.step_s(num_decoding=1, context_tokens=1, prefill_tokens=0, prefill_past_tokens=0)
    # A step gives each running request its tokens at most, and one more where prefill ends.
    assert found.output_tok_s <= rule.max_running * (rule.tokens_per_step + 1) / best


def close(found: Summary, exact: Summary, within: float) -> None:
    for metric in ("ttft", "tpot", "itl", "e2e"):
        one, other = found.of(metric), exact.of(metric)
        assert (one is None) == (other is None)
        if one and other:
            assert astuple(one) == pytest.approx(astuple(other), rel=within), metric
    assert found.duration_s == pytest.approx(exact.duration_s, rel=within)
    assert found.mean_running == pytest.approx(exact.mean_running, rel=within)
    assert (found.preemptions, found.num_steps, found.kv_peak_fraction) == (
        exact.preemptions,
        exact.num_steps,
        exact.kv_peak_fraction,
    )


@settings(deadline=None)
@given(load=loads, rule=rules, cache=caches)
def test_many_steps_at_once_are_as_many_single_steps(
    load: Load, rule: Batching, cache: KvBudget
) -> None:
    fast, slow = (run(load, rules=rule, kv=cache, step_by_step=single) for single in (False, True))
    close(fast.summary, slow.summary, 1e-9)


def varied(
    num_requests: int, *, prompt: int = 2000, output: int = 300, spread: float = 0.8, seed: int = 1
) -> tuple[RequestSize, ...]:
    workload = Workload(
        prompt_tokens=prompt,
        output_tokens=output,
        cached_fraction=0.25,
        concurrency=1,
        rate_per_s=None,
    )
    return request_sizes(
        workload, num_requests=num_requests, spread_fraction=spread, random=random.Random(seed)
    )


@pytest.mark.parametrize("cost", [STEPPED, CURVED], ids=["stepped", "curved"])
@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("load", ["users", "poisson", "bursts"])
def test_many_steps_at_once_stay_within_a_thousandth_where_cost_is_no_line(
    cost: Roof, policy: Policy, load: str
) -> None:
    made: dict[str, Load] = {
        "users": users(16, varied(150)),
        "poisson": poisson_arrivals(varied(150), rate_per_s=1.0, random=random.Random(3)),
        "bursts": gamma_arrivals(varied(150), rate_per_s=0.8, shape=0.3, random=random.Random(4)),
    }
    cache = KvBudget(total_units=600, page_tokens=64, units_per_page=1, fixed_units=1)
    fast, slow = (
        run(made[load], cost, batching(policy), cache, step_by_step=single)
        for single in (False, True)
    )
    close(fast.summary, slow.summary, 1e-3)


def seeded(seed: int) -> Simulation:
    draws = random.Random(seed)
    return run(
        gamma_arrivals(varied(60, seed=seed), rate_per_s=2.0, shape=0.5, random=draws),
        kv=KvBudget(total_units=400, page_tokens=64, units_per_page=1, fixed_units=1),
    )


def test_the_same_seed_gives_the_same_run_to_the_byte() -> None:
    assert repr(seeded(7)) == repr(seeded(7))
    assert repr(seeded(7)) != repr(seeded(8))


@settings(deadline=None)
@given(prompt=st.integers(1, 20_000), output=st.integers(2, 500), policy=st.sampled_from(Policy))
def test_at_low_load_latencies_are_those_of_a_request_alone(
    prompt: int, output: int, policy: Policy
) -> None:
    load = constant_arrivals([size(prompt, output)] * 5, rate_per_s=1e-3)
    found = run(load, rules=batching(policy, chunk_tokens=4096)).summary
    chunks = -(-prompt // 4096)
    prefill = chunks * STEADY.step + prompt * STEADY.per_prompt_token
    mean_context = prompt + 1 + (output - 2) / 2
    step = STEADY.step_s(
        num_decoding=1, context_tokens=mean_context, prefill_tokens=0, prefill_past_tokens=0
    )
    assert found.tpot is not None
    assert found.ttft.mean_s == pytest.approx(prefill, rel=1e-9)
    assert found.ttft.max_s == pytest.approx(prefill, rel=1e-9)
    assert found.tpot.p99_s == pytest.approx(step, rel=1e-9)


@settings(deadline=None)
@given(prompt=st.integers(1, 30_000), more=st.integers(1, 10_000), policy=st.sampled_from(Policy))
def test_a_longer_prompt_of_a_user_alone_waits_longer_for_its_first_token(
    prompt: int, more: int, policy: Policy
) -> None:
    # Several users may fall out of step with longer prompts, and then wait less for each other.
    short, long = (
        run(users(1, [size(tokens, 20)] * 3), rules=batching(policy)).summary.ttft.mean_s
        for tokens in (prompt, prompt + more)
    )
    assert short < long


@settings(max_examples=30, deadline=None)
@given(
    rate=st.floats(0.05, 5),
    faster=st.floats(1.5, 4),
    prompt=st.integers(100, 8000),
    policy=st.sampled_from(Policy),
)
def test_more_load_never_shortens_the_mean_time_to_first_token(
    rate: float, faster: float, prompt: int, policy: Policy
) -> None:
    # Where in a step requests come is a matter of luck worth one step.
    slow, fast = (
        run(
            constant_arrivals([size(prompt, 50)] * 40, rate_per_s=r),
            rules=batching(policy, max_running=8),
        ).summary.ttft.mean_s
        for r in (rate, rate * faster)
    )
    longest_step = STEADY.step_s(
        num_decoding=8,
        context_tokens=prompt + 50,
        prefill_tokens=prompt,
        prefill_past_tokens=0,
    )
    assert slow <= fast + longest_step


def test_one_server_with_random_arrivals_waits_as_pollaczek_and_khinchine_say() -> None:
    # Service of S = 1 s, rate 0.7 /s: the mean wait is rho S / (2 (1 - rho)) = 7/6 s.
    load = poisson_arrivals([size(1, 1)] * 60_000, rate_per_s=0.7, random=random.Random(5))
    found = run(load, Line(step=1.0), batching(max_running=1)).summary
    assert found.ttft.mean_s - 1 == pytest.approx(7 / 6, rel=0.05)
    assert found.busy_fraction == pytest.approx(0.7, rel=0.02)


@settings(deadline=None)
@given(num_users=st.integers(1, 8), think_s=st.floats(0, 5))
def test_throughput_of_users_is_their_number_over_response_and_think_time(
    num_users: int, think_s: float
) -> None:
    load = users(num_users, [size(500, 30)] * (num_users * 20), think_s=think_s)
    found = run(load).summary
    cycle_s = found.e2e.mean_s + think_s
    # The last thinking time of each user is not part of the run.
    expected = num_users * 20 / (20 * cycle_s - think_s)
    assert found.requests_per_s == pytest.approx(expected, rel=0.03)


@settings(deadline=None)
@given(rule=rules, cache=caches)
def test_a_larger_cache_never_preempts_where_all_fit(rule: Batching, cache: KvBudget) -> None:
    load = users(6, [size(800, 200)] * 12)
    room = KvBudget(
        total_units=6 * cache.units(1000),
        page_tokens=cache.page_tokens,
        units_per_page=1,
        fixed_units=cache.fixed_units,
    )
    found = run(load, rules=rule, kv=room)
    assert found.summary.preemptions == 0
    assert found.records == run(load, rules=rule, kv=ROOMY).records
