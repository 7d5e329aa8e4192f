"""The embedded engine's memory, held against the numbers of plan."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.engines import resolve_engine
from k31ctl.catalog.models import load_model
from k31ctl.core.embedded import (
    Held,
    Load,
    MemoryPlan,
    held_weight_bytes,
    longest_context,
    memory_plan,
    most_layers,
)
from k31ctl.core.inventory import inventory
from k31ctl.core.model import Model
from k31ctl.core.tensors import Group

STORE = Store(default_folders())
MODELS = {name: load_model(STORE, name) for name in ("kimi-k3", "kimi-k3.1-pro")}
ENGINE = resolve_engine(STORE, "embedded", MODELS["kimi-k3"])


def held(model: Model, *, layers: range | None = None, element_bytes: int = 2) -> Held:
    return Held(
        layers=layers or range(model.num_layers),
        with_embedding=layers is None,
        with_head=layers is None,
        element_bytes=element_bytes,
        packed_experts=True,
    )


def planned(
    how: Held,
    *,
    name: str = "kimi-k3",
    requests: int = 1,
    longest: int = 64,
    free_bytes: int = 2**50,
) -> MemoryPlan:
    load = Load(
        num_requests=requests,
        max_model_len=longest,
        num_tokens=requests * longest,
        chunk_tokens=512,
    )
    return memory_plan(MODELS[name], ENGINE, how, load, device="cpu", free_bytes=free_bytes)


@pytest.mark.parametrize(
    ("name", "per_token"),
    [
        ("kimi-k3", 27_648),  # 24 layers x (512 + 64) x 2
        ("kimi-k3.1-pro", 33_792),  # and 24 x 128 x 2 of index keys
    ],
)
def test_a_token_and_a_request_cost_what_plan_says(name: str, per_token: int) -> None:
    found = planned(held(MODELS[name]), name=name)
    assert found.bytes_per_token == per_token
    # 69 layers x (96 x 128 x 128 x 4 of state and 3 x 96 x 128 x 3 x 2 of past inputs)
    assert found.state_bytes_per_request == 69 * (6_291_456 + 221_184)


def test_float32_doubles_rows_and_past_inputs_and_leaves_the_state() -> None:
    found = planned(held(MODELS["kimi-k3"], element_bytes=4))
    assert found.bytes_per_token == 2 * 27_648
    assert found.state_bytes_per_request == 69 * (6_291_456 + 2 * 221_184)


def test_packed_bf16_weights_are_the_checkpoint_and_little_more() -> None:
    model = MODELS["kimi-k3"]
    text = sum(
        group.num_bytes
        for group in inventory(model).groups
        if group.group not in (Group.VISION, Group.PROJECTOR)
    )
    # Routers and norms in float32: 92 x 896 x 7168 x 2; kv_b twice: 24 x 96 x 256 x 512 x 2
    more = 92 * 896 * 7168 * 2 + 24 * 96 * 256 * 512 * 2
    assert held_weight_bytes(model, held(model)) == pytest.approx(text + more, rel=1e-4)


def test_the_image_encoder_of_kimi_k3_is_the_401_million_of_its_tower_and_a_projector() -> None:
    model = MODELS["kimi-k3"]
    found = planned(replace(held(model), with_vision=True)).line_bytes("vision_bytes")
    sight = [g for g in inventory(model).groups if g.group in (Group.VISION, Group.PROJECTOR)]
    assert found == pytest.approx(sum(g.num_bytes for g in sight), rel=1e-3)
    assert planned(held(model)).line_bytes("vision_bytes") == 0


def test_the_largest_image_takes_what_was_measured_and_no_more_than_a_context_holds() -> None:
    model = MODELS["kimi-k3"]
    sees = replace(held(model, element_bytes=4), with_vision=True)
    # 16,817 tokens x 4 patches x 55,000 B; a context of 64 holds an image of 64 tokens
    assert planned(sees, longest=1 << 20).line_bytes("image_bytes") == 16_817 * 4 * 55_000
    assert planned(sees, longest=64).line_bytes("image_bytes") == 64 * 4 * 55_000


def test_twelve_layers_of_kimi_k3_are_a_block_of_203_gb() -> None:
    model = MODELS["kimi-k3"]
    found = held_weight_bytes(model, held(model, layers=range(12, 24)))
    assert found == pytest.approx(202.6e9, rel=3e-3)


@given(st.integers(1, 64), st.integers(64, 1 << 20))
def test_the_context_that_is_named_as_fitting_fits(requests: int, longest: int) -> None:
    how = held(MODELS["kimi-k3"], layers=range(4))
    free = planned(how).weights_bytes + requests * 2 * 10**9
    fits = longest_context(planned(how, requests=requests, longest=longest, free_bytes=free))
    if fits:
        assert planned(how, requests=requests, longest=fits, free_bytes=free).fits


def test_the_layers_that_are_named_as_fitting_are_the_most() -> None:
    model, how = MODELS["kimi-k3"], held(MODELS["kimi-k3"], layers=range(93))
    count = most_layers(model, how, room_bytes=60 * 10**9)
    weights = [held_weight_bytes(model, replace(how, layers=range(n))) for n in (count, count + 1)]
    assert weights[0] <= 60 * 10**9 < weights[1]
