"""Runs that are short enough to work out by hand."""

import pytest

from k31ctl.core.batching import KvBudget, Policy
from k31ctl.errors import RefusedError
from tests.core.services import Line, at, batching, run, size, users

SECOND = Line(step=1.0)
TOKENS = KvBudget(total_units=20, page_tokens=1, units_per_page=1, fixed_units=0)


def test_one_request_alone_takes_its_prefill_and_then_a_step_for_each_token() -> None:
    # 100 tokens in chunks of 40: 3 steps; the third makes the first token, 4 steps the rest.
    (found,) = run(at((5.0, size(100, 5))), SECOND, batching(chunk_tokens=40)).records
    assert (found.ttft_s, found.tpot_s, found.itl_s, found.e2e_s) == (3.0, 1.0, 1.0, 7.0)
    assert (found.first_token_s, found.output_tokens) == (8.0, 5)


def test_cached_tokens_are_not_computed_and_one_token_always_is() -> None:
    cost = Line(per_prompt_token=1.0)
    cached, whole = (run(at((0.0, size(100, 1, hit))), cost).records[0].ttft_s for hit in (60, 99))
    assert (cached, whole) == (40.0, 1.0)


def test_each_chunk_sees_the_tokens_before_it() -> None:
    # 10 x 5 + 10 x 15 pairs in two chunks are the 20 x 10 of one.
    cost = Line(per_pair=1.0)
    for chunk in (10, 20):
        (found,) = run(at((0.0, size(20, 1))), cost, batching(chunk_tokens=chunk)).records
        assert found.ttft_s == 200.0


def test_a_request_of_one_token_has_no_time_between_tokens() -> None:
    found = run(at((0.0, size(10, 1))), SECOND)
    assert (found.records[0].tpot_s, found.records[0].itl_s) == (None, None)
    assert (found.summary.tpot, found.summary.itl) == (None, None)


def test_prefill_first_makes_decoding_wait_and_mixed_does_not() -> None:
    # At 3 s the second prompt takes 4 chunks; the first request has tokens at 1, 2 and 3 s.
    load = at((0.0, size(10, 6)), (2.5, size(40, 2)))
    first, mixed = (
        run(load, SECOND, batching(policy, chunk_tokens=10)).records
        for policy in (Policy.PREFILL_FIRST, Policy.MIXED)
    )
    assert [(r.arrival_s, r.itl_s) for r in first] == [(2.5, 1.0), (0.0, 5.0)]
    assert [r.max_gap_s for r in mixed] == [1.0, 1.0]
    assert [r.first_token_s for r in mixed] == [1.0, 7.0]


def test_decoding_sequences_take_their_share_of_the_budget_first() -> None:
    # 10 tokens a step less 4 for the one that decodes: 18 tokens of prompt take 3 steps, not 2.
    load = at((0.0, size(10, 20)), (0.5, size(18, 1)))
    shared, apart = (
        run(load, SECOND, batching(chunk_tokens=10, budget_per_decode=share)).records[0]
        for share in (4, 0)
    )
    assert (shared.first_token_s, apart.first_token_s) == (4.0, 3.0)


def test_speculation_makes_the_accepted_tokens_on_average() -> None:
    # 10 tokens after the first at 2.5 a step: 4 steps.
    rules = batching(tokens_per_step=2.5)
    (found,) = run(at((0.0, size(10, 11))), SECOND, rules).records
    assert (found.e2e_s, found.tpot_s, found.itl_s) == (5.0, 0.4, 1.0)


def test_the_cap_on_running_requests_makes_the_rest_wait_in_order() -> None:
    load = at(*((0.0, size(1, n)) for n in (3, 5, 2)))
    found = run(load, SECOND, batching(max_running=2))
    # 3 steps, 5 steps, and the third from 3 s to 5 s.
    assert [r.finish_s for r in found.records] == [3.0, 5.0, 5.0]
    assert [r.ttft_s for r in found.records] == [1.0, 1.0, 4.0]
    # 2 x 3 + 2 x 2 requests run, 1 x 3 wait, in 5 s.
    assert (found.summary.mean_running, found.summary.mean_waiting) == (2.0, 0.6)


def test_a_full_cache_preempts_the_last_to_arrive_which_starts_over() -> None:
    # Two of 6 + 8: both hold 10 after 4 tokens each; the fifth needs 22 of 20 units. The first
    # ends at 8 s; the second computes 6 + 4 tokens again and makes its fifth at 9 s.
    load = at((0.0, size(6, 8)), (0.0, size(6, 8)))
    found = run(load, SECOND, kv=TOKENS)
    assert [(r.finish_s, r.preemptions) for r in found.records] == [(8.0, 0), (12.0, 1)]
    assert found.records[1].itl_s == 5.0
    assert (found.summary.preemptions, found.summary.kv_peak_fraction) == (1, 1.0)


def test_room_reserved_for_the_whole_output_means_no_preemption() -> None:
    load = at((0.0, size(6, 8)), (0.0, size(6, 8)))
    rules = batching(reserved_output_fraction=1.0)
    found = run(load, SECOND, rules, TOKENS)
    assert [(r.ttft_s, r.preemptions) for r in found.records] == [(1.0, 0), (9.0, 0)]


def test_what_can_never_fit_is_refused_and_counted() -> None:
    found = run(users(1, [size(20, 1), size(19, 1)]), SECOND, kv=TOKENS)
    assert (len(found.records), found.summary.num_refused) == (1, 1)
    with pytest.raises(RefusedError, match="no request fits"):
        run(users(1, [size(20, 1)]), SECOND, kv=TOKENS)


def test_users_think_between_their_requests() -> None:
    found = run(users(2, [size(1, 2)] * 4, think_s=3.0), SECOND)
    assert [r.arrival_s for r in found.records] == [0.0, 0.0, 5.0, 5.0]
    # 2 s of 7 s of the run, twice.
    assert found.summary.busy_fraction == pytest.approx(4 / 7)


def test_a_step_that_takes_no_time_is_a_mistake_of_the_speed_model() -> None:
    with pytest.raises(ValueError, match="a step of"):
        run(at((0.0, size(1, 1))), Line())


def test_the_share_of_prefill_is_that_of_the_steps_that_carry_it() -> None:
    found = run(at((0.0, size(30, 7))), SECOND, batching(chunk_tokens=10)).summary
    assert (found.prefill_fraction, found.num_steps) == (3 / 9, 9)
