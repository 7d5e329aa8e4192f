"""What must hold of speed on every deployment: faster parts, longer prompts, larger loads."""

from dataclasses import replace
from math import isfinite
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.estimate import Estimate
from k31ctl.core.kv_cache import KvFormat, StateDtype
from k31ctl.core.performance import Performance
from tests.core.deployments import speed
from tests.core.speeds import case, faster, served

CASES = {
    "k3 on one node": case("kimi-k3", "8x-b300", "vllm", tp=8),
    "k3 in two stages": case("kimi-k3", "8x-h200", "vllm", nodes=2, tp=8, pp=2),
    "k3 over two nodes": case("kimi-k3", "8x-b200", "sglang", nodes=2, tp=16),
    "k3 in a rack": case("kimi-k3", "4x-gb300", "sglang", nodes=8, tp=32, dp=8, ep=32),
    "k3 on AMD": case("kimi-k3", "8x-mi355x", "sglang", tp=8),
    "k3.1, sparse": case("kimi-k3.1-pro", "8x-b300", "vllm@main", tp=8),
    "k3.1, contexts divided": case("kimi-k3.1-pro", "8x-b300", "vllm@main", tp=8, dcp=8),
    "k2.5 in groups": case("kimi-k2.5", "8x-h200", "vllm", tp=4, dp=2, ep=8),
    "v3.2": case("deepseek-v3.2", "8x-b200", "vllm", tp=8, ep=8),
    "linear on one": case("kimi-linear-48b", "8x-h100", "vllm", tp=1),
}
A_CASE = st.sampled_from(sorted(CASES))
PROMPTS = st.integers(1, 1_000_000)
OUTPUTS = st.integers(1, 20_000)
USERS = st.integers(1, 2_000)
CACHED = st.floats(0, 0.999)
FACTOR = st.floats(1, 50)
TIMES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
RATES = ("output_tok_s", "total_tok_s_per_gpu", "prefill_tok_s_per_gpu", "tok_s_per_user")
NEARLY = 1e-9


def estimates(found: Performance) -> dict[str, Estimate]:
    return {name: getattr(found, name) for name in (*TIMES, *RATES)}


def no_worse(better: Performance, other: Performance) -> list[str]:
    """The figures in which the first is behind the second all the same."""
    one, two = estimates(better), estimates(other)
    slower = [n for n in TIMES if one[n].value > two[n].value * (1 + NEARLY)]
    lower = [n for n in RATES if one[n].value < two[n].value * (1 - NEARLY)]
    return slower + lower


@given(
    name=A_CASE,
    memory=FACTOR,
    matmul=FACTOR,
    link=FACTOR,
    latency=FACTOR,
    users=USERS,
    prompt=PROMPTS,
)
def test_faster_hardware_is_never_slower(
    name: str,
    memory: float,
    matmul: float,
    link: float,
    latency: float,
    users: int,
    prompt: int,
) -> None:
    found = CASES[name]
    node = faster(found.node, memory=memory, matmul=matmul, link=link, latency=latency)
    load: dict[str, Any] = {"concurrency": users, "prompt_tokens": prompt}
    assert not no_worse(served(replace(found, node=node), **load), served(found, **load))


@given(name=A_CASE, few=USERS, more=st.integers(0, 500), prompt=PROMPTS, output=OUTPUTS)
def test_more_users_wait_longer_and_get_more_in_all(
    name: str, few: int, more: int, prompt: int, output: int
) -> None:
    found = CASES[name]
    one = served(found, concurrency=few, prompt_tokens=prompt, output_tokens=output)
    two = served(found, concurrency=few + more, prompt_tokens=prompt, output_tokens=output)
    assert two.tpot_s.value >= one.tpot_s.value * (1 - NEARLY)
    assert two.ttft_s.value >= one.ttft_s.value * (1 - NEARLY)
    assert two.output_tok_s.value >= one.output_tok_s.value * (1 - NEARLY)


@given(name=A_CASE, users=USERS, prompt=PROMPTS, more=st.integers(0, 100_000), output=OUTPUTS)
def test_a_longer_prompt_comes_later_and_decodes_no_faster(
    name: str, users: int, prompt: int, more: int, output: int
) -> None:
    found = CASES[name]
    one = served(found, concurrency=users, prompt_tokens=prompt, output_tokens=output)
    two = served(found, concurrency=users, prompt_tokens=prompt + more, output_tokens=output)
    assert two.ttft_s.value >= one.ttft_s.value * (1 - NEARLY)
    assert two.itl_s.value >= one.itl_s.value * (1 - NEARLY)
    assert two.tpot_s.value >= one.tpot_s.value * (1 - NEARLY)


@given(name=A_CASE, users=USERS, prompt=PROMPTS, cached=CACHED, more=CACHED)
def test_what_is_cached_comes_sooner(
    name: str, users: int, prompt: int, cached: float, more: float
) -> None:
    found = CASES[name]
    low, high = sorted((cached, more))
    one = served(found, concurrency=users, prompt_tokens=prompt, cached_fraction=low)
    two = served(found, concurrency=users, prompt_tokens=prompt, cached_fraction=high)
    assert two.ttft_s.value <= one.ttft_s.value * (1 + NEARLY)
    assert two.output_tok_s.value >= one.output_tok_s.value * (1 - NEARLY)
    assert two.itl_s == one.itl_s


@given(name=A_CASE, users=USERS, kept=st.floats(1, 8), more=st.floats(0, 8))
def test_more_accepted_tokens_never_serve_less(
    name: str, users: int, kept: float, more: float
) -> None:
    found = CASES[name]
    few = replace(found, positions=9, tokens_per_step=kept)
    many = replace(few, tokens_per_step=min(9.0, kept + more))
    assert not no_worse(served(many, concurrency=users), served(few, concurrency=users))


@given(
    name=A_CASE, users=USERS, prompt=PROMPTS, output=OUTPUTS, cached=CACHED, most=st.integers(1, 64)
)
def test_every_figure_lies_between_its_low_and_its_high(
    name: str, users: int, prompt: int, output: int, cached: float, most: int
) -> None:
    found = CASES[name]
    said = served(
        found,
        most_running=most,
        concurrency=users,
        prompt_tokens=prompt,
        output_tokens=output,
        cached_fraction=cached,
    )
    for figure, each in estimates(said).items():
        assert 0 < each.low < each.value < each.high, figure
        assert isfinite(each.high), figure


@given(name=A_CASE, users=st.floats(1, 2_000), context=PROMPTS, positions=st.integers(1, 9))
def test_the_parts_of_a_decode_step_add_up_to_its_stages(
    name: str, users: float, context: int, positions: int
) -> None:
    found = CASES[name]
    step = found.step(speed())
    load: dict[str, Any] = {
        "sequences": users,
        "context_tokens": float(context),
        "positions": positions,
    }
    parts, stages = step.decode_parts(**load), step.decode_s(**load)
    assert len(stages) == found.layout.pp
    assert sum(part.seconds for part in parts) == pytest.approx(sum(stages))
    assert len({part.name for part in parts}) == len(parts)


@given(name=A_CASE, tokens=st.floats(1, 100_000), past=st.floats(0, 1e6))
def test_the_parts_of_a_chunk_add_up_to_its_stages(name: str, tokens: float, past: float) -> None:
    found = CASES[name]
    step = found.step(speed())
    load: dict[str, Any] = {"tokens": tokens, "past_tokens": past, "sequences": 1.0}
    parts, stages = step.prefill_parts(**load), step.prefill_s(**load)
    assert sum(part.seconds for part in parts) == pytest.approx(sum(stages))


@given(name=A_CASE, users=USERS, prompt=PROMPTS)
def test_no_part_beats_what_physics_allows(name: str, users: int, prompt: int) -> None:
    found = CASES[name]
    said = served(found, concurrency=users, prompt_tokens=prompt)
    for part in (*said.decode_parts, *said.prefill_parts):
        assert 0 <= part.limit_s <= part.seconds, part


@given(name=A_CASE, users=USERS, prompt=PROMPTS, output=st.integers(2, 20_000))
def test_first_token_and_the_rest_are_the_whole_answer(
    name: str, users: int, prompt: int, output: int
) -> None:
    found = CASES[name]
    said = served(found, concurrency=users, prompt_tokens=prompt, output_tokens=output)
    rest = said.tpot_s.value * (output - 1)
    assert said.ttft_s.value + rest == pytest.approx(said.e2e_s.value)


@given(name=A_CASE, users=USERS, prompt=PROMPTS, output=OUTPUTS, most=st.integers(1, 64))
def test_users_throughput_and_time_obey_littles_law(
    name: str, users: int, prompt: int, output: int, most: int
) -> None:
    found = CASES[name]
    said = served(
        found, most_running=most, concurrency=users, prompt_tokens=prompt, output_tokens=output
    )
    in_system = said.output_tok_s.value / output * said.e2e_s.value
    assert in_system == pytest.approx(users)
    assert said.running + said.waiting == pytest.approx(users)


@given(name=A_CASE, users=USERS, most=st.integers(1, 256))
def test_users_beyond_the_cache_only_queue(name: str, users: int, most: int) -> None:
    found = CASES[name]
    full = most * found.layout.dp
    one = served(found, most_running=most, concurrency=full)
    two = served(found, most_running=most, concurrency=full + users)
    assert two.running == one.running == full
    assert two.waiting == users
    assert two.ttft_s.value > one.ttft_s.value
    assert (two.tpot_s.value, two.itl_s.value) == (one.tpot_s.value, one.itl_s.value)
    assert two.output_tok_s.value == pytest.approx(one.output_tok_s.value)


@given(name=A_CASE, users=USERS, prompt=PROMPTS)
def test_an_answer_of_one_token_is_a_prefill(name: str, users: int, prompt: int) -> None:
    found = CASES[name]
    said = served(found, concurrency=users, prompt_tokens=prompt, output_tokens=1)
    assert said.tpot_s.value == said.itl_s.value
    assert said.prefill_share == 1
    assert said.e2e_s.value >= said.ttft_s.value


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@given(users=USERS, prompt=PROMPTS)
def test_smaller_cache_rows_and_states_are_never_slower(
    engine: str, users: int, prompt: int
) -> None:
    load: dict[str, Any] = {"concurrency": users, "prompt_tokens": prompt}
    plain = served(case("kimi-k3", "8x-b300", engine, tp=8, kv_dtype=KvFormat.BF16), **load)
    rows = served(case("kimi-k3", "8x-b300", engine, tp=8, kv_dtype=KvFormat.FP8), **load)
    state = StateDtype.BF16
    states = served(
        case("kimi-k3", "8x-b300", engine, tp=8, kv_dtype=KvFormat.BF16, state_dtype=state), **load
    )
    assert not no_worse(rows, plain)
    assert not no_worse(states, plain)


@pytest.mark.parametrize("users", [1, 8])
def test_sparse_attention_pays_at_a_million_tokens_and_not_at_two_thousand(users: int) -> None:
    sparse = case("kimi-k3.1-pro", "8x-b300", "vllm@main", tp=8).step(speed())
    dense = case("kimi-k3", "8x-b300", "vllm@main", tp=8).step(speed())

    def both(context: float) -> tuple[float, float]:
        load: dict[str, Any] = {
            "sequences": float(users),
            "context_tokens": context,
            "positions": 1,
        }
        return sum(sparse.decode_s(**load)), sum(dense.decode_s(**load))

    long, short = both(1_048_576.0), both(2_048.0)
    assert long[0] < long[1]
    assert short[0] >= short[1]
