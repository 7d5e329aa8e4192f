"""What is planned is what is then allocated."""

from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch

from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.engines import resolve_engine
from k31ctl.catalog.models import load_model, model_at
from k31ctl.core.embedded import Wish
from k31ctl.core.expert_budget import Budget
from k31ctl.engine.checkpoint import Checkpoint, load_vision
from k31ctl.engine.generate import Generation
from k31ctl.engine.start import PIECE_TOKENS, Choice, choose, loaded
from k31ctl.errors import InputError, RefusedError
from tests.engine.conftest import Tiny
from tests.engine.runs import in_pieces, load, prompt

PLENTY = 2**36
FORMS = ("plain", "packed")


def chosen(folder: Path, *, free: int = PLENTY, **wish: Any) -> Choice:
    shape = model_at(folder)
    engine = resolve_engine(Store(default_folders()), "embedded", shape)
    return choose(
        Checkpoint(folder), shape, engine, Wish(**{"device": "cpu", **wish}), host_free_bytes=free
    )


def test_a_plan_takes_prompts_in_the_pieces_that_the_scheduler_takes() -> None:
    kimi = load_model(Store(default_folders()), "kimi-k3")
    engine = resolve_engine(Store(default_folders()), "embedded", kimi)
    taken = signature(Generation).parameters["piece_tokens"].default
    assert set(engine.memory.chunk_tokens.values()) == {taken} == {PIECE_TOKENS}
    assert engine.staggered
    assert engine.one_by_one


def tensors_of(thing: object, seen: set[int]) -> Iterator[torch.Tensor]:
    """Every tensor that an object holds, each storage once."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from tensors_of(value, seen)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from tensors_of(value, seen)
    elif type(thing).__module__.startswith("k31ctl.engine") and hasattr(thing, "__dict__"):
        yield from tensors_of(vars(thing), seen)


@pytest.mark.parametrize("model", ["kimi-k3.1-pro", "kimi-k3", "kimi-linear"])
@pytest.mark.parametrize("experts", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_weights_take_what_was_planned(tiny: Tiny, model: str, experts: str, dtype: str) -> None:
    choice = chosen(tiny(model), experts=experts, dtype=dtype, is_plain=True)
    held = sum(tensor.nbytes for tensor in tensors_of(loaded(choice), set()))
    assert held == pytest.approx(choice.plan.weights_bytes, rel=0.03)


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_the_image_encoder_takes_what_was_planned(tiny: Tiny, dtype: str) -> None:
    choice = chosen(tiny("kimi-k3"), dtype=dtype, is_plain=True)
    encoder = load_vision(tiny("kimi-k3"), choice.target)
    held = sum(tensor.nbytes for tensor in tensors_of(encoder, set()))
    assert held == pytest.approx(choice.plan.line_bytes("vision_bytes"), rel=0.2)


@pytest.mark.parametrize("model", ["kimi-k3.1-pro", "kimi-k3", "kimi-linear"])
@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_the_cache_takes_what_was_planned_to_the_byte(tiny: Tiny, model: str, dtype: str) -> None:
    choice = chosen(tiny(model), dtype=dtype, num_requests=3, max_model_len=1000)
    load = choice.plan.load
    cache = loaded(choice).cache(num_slots=load.num_requests, num_tokens=load.num_tokens)
    assert cache.num_bytes() == choice.plan.cache_bytes


def test_experts_stay_packed_only_where_they_would_not_fit_otherwise(tiny: Tiny) -> None:
    folder = tiny("kimi-k3")
    plain, packed = (chosen(folder, experts=form).plan.total_bytes for form in FORMS)
    assert "they fit" in chosen(folder, free=plain).reasons[-1]
    tight = chosen(folder, free=packed)
    assert tight.packed_experts
    assert "would not fit" in tight.reasons[-1]


def test_a_refusal_names_a_context_that_fits(tiny: Tiny) -> None:
    folder = tiny("kimi-k3")
    with pytest.raises(RefusedError, match="GiB are needed") as refused:
        chosen(folder, free=2**28, num_requests=64, max_model_len=1 << 20)
    longest = int(refused.value.remedy.split()[2].rstrip(","))
    assert chosen(folder, free=2**28, num_requests=64, max_model_len=longest).plan.fits


def test_a_refusal_for_weights_names_layers_that_fit(tiny: Tiny) -> None:
    folder = tiny("kimi-k3")
    small = chosen(folder, experts="packed", num_requests=1, max_model_len=64).plan
    free = small.total_bytes - small.weights_bytes // 2
    with pytest.raises(RefusedError, match="for weights") as refused:
        chosen(folder, free=free, num_requests=1, max_model_len=64)
    assert "--layers 0-" in refused.value.remedy


def test_a_cache_of_given_size_holds_whole_pages(tiny: Tiny) -> None:
    choice = chosen(tiny("kimi-k3"), cache_bytes=2**20, num_requests=2)
    plan = choice.plan
    assert plan.load.num_tokens % 64 == 0
    assert plan.cache_bytes <= 2**20 < plan.cache_bytes + 64 * plan.bytes_per_token


def test_layers_that_do_not_exist_are_refused(tiny: Tiny) -> None:
    with pytest.raises(InputError, match="numbered from 0"):
        chosen(tiny("kimi-k3"), layers=range(4, 9))


def test_streamed_experts_take_what_is_left_or_what_was_asked(tiny: Tiny) -> None:
    folder = tiny("kimi-k3")
    # 5 layers of 8 experts, 3 x 64 x 64 values each: 6,528 B stored, 49,152 B in float32
    everything = chosen(folder, experts="streamed")
    assert everything.streamed == Budget(host_bytes=40 * 6_528, device_bytes=40 * 49_152)
    assert everything.plan.weights_bytes < chosen(folder, experts="packed").plan.weights_bytes
    without = everything.plan.total_bytes - 40 * (6_528 + 49_152)
    tight = chosen(folder, experts="streamed", free=(without + 700_000) * 10 // 9)
    assert tight.streamed is not None
    assert 650_000 < tight.streamed.host_bytes + tight.streamed.device_bytes <= 700_000
    asked = chosen(
        folder, experts="streamed", experts_stored_bytes=10_000, experts_ready_bytes=50_000
    )
    assert asked.streamed == Budget(host_bytes=10_000, device_bytes=50_000)
    assert asked.plan.total_bytes == without + 60_000
    with pytest.raises(RefusedError, match="one expert has 49,152 bytes") as refused:
        chosen(folder, experts="streamed", experts_ready_bytes=40_000)
    assert "--experts-ready 49152" in refused.value.remedy


def test_streamed_experts_and_all_else_stay_within_the_plan(tiny: Tiny) -> None:
    choice = chosen(
        tiny("kimi-k3"),
        experts="streamed",
        experts_stored_bytes=20_000,
        experts_ready_bytes=150_000,
        is_plain=True,
    )
    model, plan = loaded(choice), choice.plan
    in_pieces(model, prompt(40), [30, 1, 1, 8])
    seen: set[int] = set()
    experts = sum(tensor.nbytes for tensor in tensors_of(model.store, seen))
    assert 0 < experts <= 170_000
    held = sum(tensor.nbytes for tensor in tensors_of(model, set()))
    assert held - experts == pytest.approx(plan.weights_bytes, rel=0.03)
    lines = ("experts_stored_bytes", "experts_ready_bytes")
    assert [plan.line_bytes(key) for key in lines] == [20_000, 150_000]


@pytest.mark.parametrize("experts", ["plain", "streamed"])
@pytest.mark.parametrize("model", ["kimi-k3.1-pro", "kimi-linear"])
def test_stages_say_to_the_bit_what_one_device_says(tiny: Tiny, model: str, experts: str) -> None:
    choice = chosen(tiny(model), device="cpu,cpu,cpu", experts=experts, num_requests=2)
    many, one = loaded(choice), loaded(chosen(tiny(model), experts=experts))
    spans = [stage.layers for stage in choice.stages]
    # Blocks of 3 layers leave the third device without any; Kimi Linear has no blocks.
    assert len(spans) == (2 if model == "kimi-k3.1-pro" else 3)
    load = choice.plan.load
    cache = many.cache(num_slots=load.num_requests, num_tokens=load.num_tokens)
    for stage in choice.stages:
        held = sum(cache.layers[layer].num_bytes() for layer in stage.layers)
        assert held == stage.cache_bytes
    lengths = [30, 1, 1, 8]
    assert torch.equal(in_pieces(many, prompt(40), lengths), in_pieces(one, prompt(40), lengths))


def test_layers_their_caches_and_the_head_live_on_their_own_device(tiny: Tiny) -> None:
    meta = torch.device("meta")  # the one other device that every machine has
    model = load(tiny("kimi-k3"), devices=dict.fromkeys(range(3, 6), meta))
    cache = model.cache(num_slots=1, num_tokens=64)
    for number, layer in model.layers.items():
        at = meta if number >= 3 else torch.device("cpu")
        parts = [*tensors_of(layer, {id(model.target)}), *tensors_of(cache.layers[number], set())]
        assert {part.device for part in parts} == {at}
    assert model.ends.norm_D.device == meta
    stream = model.start(prompt(5))
    stream.close_block()
    stream.add(stream.snapshots[:, 0])
    stream.move(meta)
    assert stream.live_TD is not None
    assert {stream.live_TD.device, stream.snapshots.device} == {meta}


def test_a_device_that_cannot_hold_its_layers_is_named(tiny: Tiny) -> None:
    with pytest.raises(RefusedError, match="GiB are needed") as refused:
        chosen(tiny("kimi-k3"), device="cpu,cpu", free=2**27, max_model_len=1 << 20)
    assert "on cpu, layers " in refused.value.where
