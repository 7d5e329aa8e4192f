"""Speed on every layout that an engine takes, and the closed form beside the simulation."""

from collections.abc import Iterator
from itertools import product
from math import isfinite
from random import Random
from typing import Any

import pytest

from k31ctl.catalog.store import Kind
from k31ctl.core.deployment import Deployment, deployment
from k31ctl.core.layout_rules import Case as Asked
from k31ctl.core.layout_rules import broken_rule, check_support, resolved
from k31ctl.core.performance import Performance
from k31ctl.core.prediction import case_of
from k31ctl.core.request import Parts
from k31ctl.core.simulation_request import SimulationRequest
from k31ctl.errors import RefusedError
from tests.core.deployments import STORE, asked, parts, planned
from tests.core.speeds import LOAD, served

LENGTH = LOAD.prompt_tokens + LOAD.output_tokens
ALL_HARDWARE = STORE.ids(Kind.HARDWARE)


def layouts(found: Parts, nodes: int) -> Iterator[Deployment]:
    """Every deployment of a coarse grid that fills these nodes, is legal and holds a request."""
    for tp, pp, dp, dcp in product((1, 4, 8, 16), (1, 2, 8), (1, 4), (1, 8)):
        for ep in sorted({1, tp, tp * dp}):
            request = asked(nodes=nodes, tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp)
            layout = resolved(
                request.layout, model=found.model, engine=found.engine, node=found.node
            )
            tried = Asked(model=found.model, engine=found.engine, layout=layout, has_draft=False)
            if layout.world == nodes * found.node.num_gpus and broken_rule(tried) is None:
                built = deployment(found, request)
                if built.loads and built.pool.max_requests(LENGTH):
                    yield built


@pytest.mark.parametrize(
    ("model_id", "engine", "at_least"),
    [
        ("kimi-k3", "vllm", 40),
        ("kimi-k3", "sglang", 40),
        ("kimi-k3", "tokenspeed", 10),
        ("kimi-k3", "tensorrt-llm", 5),
        ("kimi-k3", "embedded", 2),
        ("kimi-k3.1-pro", "vllm@main", 40),
        ("kimi-k3.1-pro", "sglang", 40),
    ],
)
def test_every_legal_layout_that_fits_has_a_speed(
    model_id: str, engine: str, at_least: int
) -> None:
    count = 0
    for node_id, nodes in product(ALL_HARDWARE, (1, 2)):
        found = parts(model_id, node_id, engine)
        try:
            check_support(model=found.model, engine=found.engine, node=found.node)
        except RefusedError:
            continue
        for built in layouts(found, nodes):
            said = served(case_of(found, built), most_running=built.pool.max_requests(LENGTH))
            rates = (said.output_tok_s, said.prefill_tok_s_per_gpu, said.tok_s_per_user)
            times = (said.ttft_s, said.tpot_s, said.itl_s, said.e2e_s)
            assert all(0 < each.low < each.high for each in (*rates, *times)), built.layout.text
            assert all(isfinite(each.high) for each in (*rates, *times)), built.layout.text
            steps = (*said.decode_parts, *said.prefill_parts)
            assert all(part.limit_s <= part.seconds for part in steps), built.layout.text
            count += 1
    assert count >= at_least


def played(seed: int = 0) -> SimulationRequest:
    return SimulationRequest(trace=None, trace_notes=(), slo=None, random=Random(seed), seed=seed)


def speed_of(engine: str, **given: Any) -> Performance:
    length = given["prompt_tokens"] + given["output_tokens"]
    found = planned("kimi-k3", "8x-b300", engine, contexts=(length,), **given).speed.performance
    assert found is not None
    return found


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tokenspeed"])
@pytest.mark.parametrize(
    ("users", "prompt", "output"),
    [(1, 1024, 1024), (8, 1024, 1024), (16, 8192, 1024), (64, 1024, 256), (4, 65_536, 512)],
)
def test_equal_requests_played_out_get_what_the_closed_form_says(
    engine: str, users: int, prompt: int, output: int
) -> None:
    load = {"concurrency": users, "prompt_tokens": prompt, "output_tokens": output}
    closed, run = speed_of(engine, **load), speed_of(engine, **load, simulation=played())
    assert run.output_tok_s.value == pytest.approx(closed.output_tok_s.value, rel=0.03)
    assert run.e2e_s.value == pytest.approx(closed.e2e_s.value, rel=0.03)


@pytest.mark.parametrize(
    ("users", "prompt", "output"), [(8, 1024, 1024), (16, 8192, 1024), (4, 65_536, 512)]
)
def test_an_engine_that_prefills_first_keeps_requests_in_step(
    users: int, prompt: int, output: int
) -> None:
    load = {"concurrency": users, "prompt_tokens": prompt, "output_tokens": output}
    closed, run = speed_of("sglang", **load), speed_of("sglang", **load, simulation=played())
    assert run.ttft_s.value == pytest.approx(closed.ttft_s.value, rel=0.03)
    assert run.tpot_s.value == pytest.approx(closed.tpot_s.value, rel=0.03)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tokenspeed"])
@pytest.mark.parametrize(("prompt", "output"), [(1024, 64), (8192, 1024)])
def test_a_request_that_comes_alone_takes_one_prefill_and_its_steps(
    engine: str, prompt: int, output: int
) -> None:
    load = {"prompt_tokens": prompt, "output_tokens": output}
    alone = speed_of(engine, **load, concurrency=1)
    rare = speed_of(engine, **load, rate_per_s=1e-5, simulation=played())
    assert rare.ttft_s.value == pytest.approx(alone.ttft_s.value, rel=1e-3)
    assert rare.tpot_s.value == pytest.approx(alone.itl_s.value, rel=1e-3)
    assert rare.itl_s.value == pytest.approx(alone.itl_s.value, rel=1e-3)
    assert rare.prefill_share == pytest.approx(alone.prefill_share, rel=0.01)


@pytest.mark.parametrize("simulated", [False, True])
def test_idle_groups_serve_nobody(simulated: bool) -> None:
    # four groups of eight ranks in a rack, and one request: three of them have none
    load: dict[str, Any] = {
        "prompt_tokens": 1024,
        "output_tokens": 64,
        "contexts": (1088,),
        "concurrency": 1,
    }
    sizes: dict[str, Any] = {"nodes": 8, "tp": 32, "dp": 4, "ep": 32}
    given = {**load, "simulation": played()} if simulated else load
    found = planned("kimi-k3", "4x-gb300", "sglang", **given, **sizes).speed.performance
    assert found is not None
    assert found.running == pytest.approx(1, rel=0.05)
    assert found.output_tok_s.value == pytest.approx(64 / found.e2e_s.value)


def test_cached_tokens_are_still_attended_to_in_prefill() -> None:
    # as many tokens to compute; those of the second come after a long cached past
    plain = speed_of("vllm", concurrency=1, prompt_tokens=2048, output_tokens=64)
    after = speed_of(
        "vllm", concurrency=1, prompt_tokens=262_144, output_tokens=64, cached_fraction=1 - 1 / 128
    )
    assert after.prefill_tok_s_per_gpu.value < plain.prefill_tok_s_per_gpu.value


def test_the_curve_ends_where_the_cache_is_full() -> None:
    load: dict[str, Any] = {"prompt_tokens": 130_048, "output_tokens": 1024}
    found = planned("kimi-k3", "8x-b300", contexts=(131_072,), **load)
    curve = found.speed.curve
    assert [bool(point.waiting) for point in curve] == [False] * (len(curve) - 1) + [True]
    assert curve[-1].running == found.cell.max_requests


def test_a_seed_repeats_its_arrivals_and_another_does_not() -> None:
    load = {"prompt_tokens": 8192, "output_tokens": 256, "rate_per_s": 2.0}
    first, again = (speed_of("vllm", **load, simulation=played(7)) for _ in range(2))
    other = speed_of("vllm", **load, simulation=played(8))
    assert first == again
    assert first.ttft_s != other.ttft_s


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"node_id": "8x-h200"}, "does not fit"),
        ({"node_id": "8x-b300", "kv_memory_bytes": 1 << 30, "contexts": (1_048_576,)}, "cache"),
    ],
)
def test_where_nothing_can_run_the_reason_is_said(given: dict[str, Any], why: str) -> None:
    found = planned("kimi-k3", **given).speed
    assert found.performance is None
    assert why in found.why_not
