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
from k31ctl.engine.checkpoint import load_vision
from k31ctl.engine.generate import Generation
from k31ctl.engine.start import PIECE_TOKENS, Choice, choose, loaded
from k31ctl.errors import InputError, RefusedError
from tests.engine.conftest import Tiny

PLENTY = 2**36
FORMS = ("plain", "packed")


def chosen(folder: Path, *, free: int = PLENTY, **wish: Any) -> Choice:
    shape = model_at(folder)
    engine = resolve_engine(Store(default_folders()), "embedded", shape)
    return choose(folder, shape, engine, Wish(device="cpu", **wish), host_free_bytes=free)


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
    held = sum(tensor.nbytes for tensor in tensors_of(loaded(tiny(model), choice), set()))
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
    cache = loaded(tiny(model), choice).cache(
        num_slots=load.num_requests, num_tokens=load.num_tokens
    )
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
