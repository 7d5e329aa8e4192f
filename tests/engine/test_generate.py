"""Sampling and many requests at once."""

import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.engine.generate import Failed, Finish, Generation, Request, Said
from k31ctl.engine.model import Layer, Model
from k31ctl.engine.sample import Sampler, Sampling, kept, likelihood
from k31ctl.errors import RefusedError
from tests.engine.conftest import Tiny
from tests.engine.runs import greedy, load, prompt

GREEDY = Sampling(temperature=0.0)
HALVES = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625]).log()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"top_k": 2}, [0, 1]),
        ({"top_p": 0.5}, [0]),  # 0.5 holds one half
        ({"top_p": 0.51}, [0, 1]),
        ({"min_p": 0.25}, [0, 1, 2]),  # a quarter of one half is one eighth
        ({"top_k": 3, "top_p": 0.6}, [0, 1]),  # 4/7, then 2/7
        ({"top_p": 0.0}, [0]),
    ],
)
def test_limits_keep(limits: dict[str, float], expected: list[int]) -> None:
    sampling = Sampling(temperature=1.0, **limits)  # type: ignore[arg-type]
    assert kept(HALVES, sampling)[1].tolist() == expected


@pytest.mark.parametrize("limits", [{}, {"top_k": 2}, {"top_p": 0.9}, {"min_p": 0.1}])
@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-309, sys.float_info.min, 1e-300])
def test_the_smallest_temperatures_take_the_likeliest(
    temperature: float, limits: dict[str, float]
) -> None:
    logits = torch.tensor([-7.0, 900.0, 901.0, -3e38])
    sampler = Sampler(Sampling(temperature=temperature, **limits))  # type: ignore[arg-type]
    assert {sampler.choose(logits) for _ in range(20)} == {2}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_no_numbers_are_refused(value: float, temperature: float) -> None:
    with pytest.raises(FloatingPointError, match="not all finite"):
        Sampler(Sampling(temperature=temperature)).choose(torch.tensor([1.0, value, 0.5]))


def test_draws_follow_the_distribution_and_the_seed() -> None:
    sampling = Sampling(temperature=0.5, seed=11)  # squares: 16:4:1:1/4:1/4 in sum 21.5
    first, second = Sampler(sampling), Sampler(sampling)
    drawn = [first.choose(HALVES) for _ in range(1500)]
    assert drawn == [second.choose(HALVES) for _ in range(1500)]
    expected = 1500 * 16 / 21.5
    assert abs(drawn.count(0) - expected) < 5 * math.sqrt(expected)
    other = Sampler(Sampling(temperature=0.5, seed=12))
    assert drawn != [other.choose(HALVES) for _ in range(1500)]


@pytest.mark.parametrize("limits", [{}, {"min_p": 0.4}])
def test_draws_are_the_same_where_rounding_changes_the_order(limits: dict[str, float]) -> None:
    noise = torch.rand((2, 500), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    one, other = (HALVES.repeat(100).double() + 1e-9 * noise).unbind()
    assert one.argsort().tolist() != other.argsort().tolist()
    sampling = Sampling(temperature=1.0, seed=5, **limits)  # type: ignore[arg-type]
    first, second = Sampler(sampling), Sampler(sampling)
    drawn = [first.choose(one) for _ in range(200)]
    assert drawn == [second.choose(other) for _ in range(200)]


def test_likelihoods_are_those_of_the_logits_whatever_the_temperature() -> None:
    told = likelihood(HALVES, 2, num_top=2)
    assert told.logprob == pytest.approx(math.log(0.125))
    assert [token for token, _ in told.top] == [0, 1]
    assert [value for _, value in told.top] == pytest.approx([math.log(0.5), math.log(0.25)])


def ask(number: int, *, length: int, max_tokens: int) -> Request:
    tokens = tuple(prompt(length, seed=number).tolist())
    return Request(id=str(number), tokens=tokens, max_tokens=max_tokens, sampling=GREEDY)


def by_request(said: Sequence[Said | Failed]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in said:
        assert isinstance(each, Said)
        found.setdefault(each.request_id, []).append(each.token)
    return found


@pytest.mark.parametrize("model", ["kimi-k3.1-pro", "kimi-k3", "kimi-linear"])
def test_many_requests_at_once_say_what_each_says_alone(tiny: Tiny, model: str) -> None:
    ours = load(tiny(model))
    requests = [ask(i, length=3 + 9 * i, max_tokens=4 + i) for i in range(7)]
    generation = Generation(ours, num_slots=3, num_tokens=256, piece_tokens=20)
    for request in requests:
        generation.submit(request)
    said = list(generation.run())
    alone = {r.id: greedy(ours, torch.tensor(r.tokens), r.max_tokens) for r in requests}
    assert by_request(said) == alone
    assert [each.finish for each in said if each.finish] == [Finish.LENGTH] * 7
    assert (generation.cache.num_free_slots, generation.cache.num_free_tokens) == (3, 256)


@pytest.fixture(scope="module")
def sparse(tiny: Tiny) -> Model:
    return load(tiny("kimi-k3.1-pro"))


@settings(deadline=None, max_examples=8)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 6)), min_size=1, max_size=8),
    cancelled=st.sets(st.tuples(st.integers(0, 7), st.integers(0, 8))),
)
def test_cancelling_at_any_moment_leaks_no_slot_and_changes_no_other(
    sparse: Model, lengths: list[tuple[int, int]], cancelled: set[tuple[int, int]]
) -> None:
    ours = sparse
    generation = Generation(ours, num_slots=3, num_tokens=320, piece_tokens=16)
    for i, (length, max_tokens) in enumerate(lengths):
        generation.submit(ask(i, length=length, max_tokens=max_tokens))
    said: list[Said | Failed] = []
    for step in range(400):
        dropped = [i for i, moment in cancelled if moment == step]
        for number in dropped:
            generation.cancel(str(number))
        said += generation.step()
        if not (generation.num_waiting or generation.num_running):
            break
    assert (generation.cache.num_free_slots, generation.cache.num_free_tokens) == (3, 320)
    spared = {i for i in range(len(lengths))} - {i for i, _ in cancelled}
    told = by_request(said)
    for i in spared:
        length, max_tokens = lengths[i]
        assert told[str(i)] == greedy(ours, prompt(length, seed=i), max_tokens)


def test_a_stop_token_ends_a_request_and_is_said(tiny: Tiny) -> None:
    ours, tokens = load(tiny("kimi-k3")), prompt(12)
    free = greedy(ours, tokens, 6)
    request = Request(
        id="a",
        tokens=tuple(tokens.tolist()),
        max_tokens=6,
        sampling=GREEDY,
        stop_ids=frozenset(free[2:3]),
        num_top=3,
    )
    generation = Generation(ours, num_slots=1, num_tokens=64)
    generation.submit(request)
    said = list(generation.run())
    end = free.index(free[2]) + 1
    assert [each.token for each in said] == free[:end]
    assert said[-1].finish is Finish.STOP
    assert all(
        each.likelihood is not None and each.likelihood.top[0][0] == each.token for each in said
    )


def test_a_request_that_can_never_fit_is_refused_and_others_wait(tiny: Tiny) -> None:
    generation = Generation(load(tiny("kimi-k3")), num_slots=2, num_tokens=128)
    with pytest.raises(RefusedError, match="100 tokens and 29 more do not fit"):
        generation.submit(ask(1, length=100, max_tokens=29))
    for number in range(3):
        generation.submit(ask(number, length=60, max_tokens=4))
    generation.step()
    assert (generation.num_running, generation.num_waiting) == (2, 1)


def test_what_fails_for_one_request_ends_it_alone(tiny: Tiny) -> None:
    """One cannot begin, as no generator takes its seed; one meets a token that is not a number."""
    ours = load(tiny("kimi-k3"))
    expected = greedy(ours, prompt(9, seed=1), 5)
    ours.ends.embedding_VD[501] = math.nan
    unlawful = Sampling(temperature=1.0, seed=2**70)
    bad = [
        dataclasses.replace(ask(2, length=9, max_tokens=5), sampling=unlawful),
        dataclasses.replace(ask(3, length=9, max_tokens=5), tokens=(5, 501)),
    ]
    generation = Generation(ours, num_slots=3, num_tokens=256)
    for request in (ask(1, length=9, max_tokens=5), *bad):
        generation.submit(request)
    first = generation.step()
    assert {each.request_id for each in first if isinstance(each, Failed)} == {"2", "3"}
    said = [each for each in first if isinstance(each, Said)] + list(generation.run())
    assert by_request(said) == {"1": expected}
    assert (generation.cache.num_free_slots, generation.cache.num_free_tokens) == (3, 256)


def test_what_fails_in_the_model_ends_what_it_was_computing_and_no_more(tiny: Tiny) -> None:
    """States of its first layers have moved on by then, so that the step cannot be repeated."""
    ours = load(tiny("kimi-k3"))
    expected = greedy(ours, prompt(9, seed=3), 5)
    generation = Generation(ours, num_slots=2, num_tokens=256)
    for number in (1, 2, 3):
        generation.submit(ask(number, length=9, max_tokens=5))
    sound, ours.layers[3] = ours.layers[3], cast(Layer, None)
    failed = generation.step()
    ours.layers[3] = sound
    assert {each.request_id for each in failed if isinstance(each, Failed)} == {"1", "2"}
    assert by_request(list(generation.run())) == {"3": expected}
    assert (generation.cache.num_free_slots, generation.cache.num_free_tokens) == (2, 256)
