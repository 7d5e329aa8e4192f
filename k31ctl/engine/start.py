"""From what is asked to a model that is ready: device, type, memory plan, and only then weights."""

import ctypes
import gc
from contextlib import suppress
from dataclasses import replace
from typing import Final

import torch

from k31ctl.core.embedded import (
    Held,
    Load,
    MemoryPlan,
    Wish,
    longest_context,
    memory_plan,
    most_layers,
)
from k31ctl.core.engine import Engine
from k31ctl.core.expert_budget import (
    Budget,
    expert_budget,
    expert_sizes,
    has_room,
    with_experts,
)
from k31ctl.core.model import Model as Shape
from k31ctl.core.stages import Place, staged, together
from k31ctl.engine.checkpoint import Checkpoint, load_model
from k31ctl.engine.devices import chosen_devices, chosen_type, places, type_name
from k31ctl.engine.kernels import choice as kernel_choice
from k31ctl.engine.model import Model
from k31ctl.engine.tensors import Kernels, Target
from k31ctl.errors import InputError, RefusedError
from k31ctl.values import frozen

PIECE_TOKENS: Final = 512
_USUAL_TOKENS: Final = 8192
_TOWER: Final = "vision_tower."
_EMBEDDING: Final = "model.embed_tokens.weight"


@frozen
class Choice:
    """What was settled, each with its reason, and the memory that it takes.

    ``stages`` are the plans of the devices, in the order of their layers; ``plan`` is their sum.
    """

    checkpoint: Checkpoint
    target: Target
    layers: range | None
    has_ends: bool
    packed_experts: bool
    streamed: Budget | None
    stages: tuple[MemoryPlan, ...]
    reasons: tuple[str, ...]

    @property
    def plan(self) -> MemoryPlan:
        """What all devices hold together."""
        return together(self.stages)


@frozen
class _Asked:
    """What every plan of one start has in common."""

    shape: Shape
    engine: Engine
    load: Load
    places: tuple[Place, ...]
    block: int
    cache_bytes: int | None

    def stages(self, held: Held) -> tuple[MemoryPlan, ...]:
        """The plans of the devices for a model that is held so."""
        load = _with_cache(self.load, self.shape, self.engine, held, self.cache_bytes)
        return staged(self.shape, self.engine, held, load, places=self.places, block=self.block)


def choose(
    checkpoint: Checkpoint, shape: Shape, engine: Engine, wish: Wish, *, host_free_bytes: int
) -> Choice:
    """Settle everything and plan the memory; nothing is allocated.

    Raises RefusedError where it does not fit, saying what would.
    """
    _check_layers(wish.layers, shape.num_layers)
    devices, why_device = chosen_devices(wish.device)
    dtype, why_type = chosen_type(wish.dtype, devices[0])
    kernels = Kernels.PLAIN if wish.is_plain else Kernels.AUTO
    target = Target(dtype=dtype, device=devices[0], kernels=kernels)
    has_ends = wish.layers is None or any(name.endswith(_EMBEDDING) for name in checkpoint.files)
    held = Held(
        layers=wish.layers or range(shape.num_layers),
        with_embedding=has_ends,
        with_head=has_ends,
        element_bytes=dtype.itemsize,
        packed_experts=wish.experts == "packed",
        streams_experts=wish.experts == "streamed",
        with_vision=any(name.startswith(_TOWER) for name in checkpoint.files),
    )
    longest = wish.max_model_len or min(checkpoint.config.max_tokens, _USUAL_TOKENS)
    asked = _Asked(
        shape=shape,
        engine=engine,
        load=Load(
            num_requests=wish.num_requests,
            max_model_len=longest,
            num_tokens=longest * wish.num_requests,
            chunk_tokens=PIECE_TOKENS,
        ),
        places=places(devices, host_free_bytes=host_free_bytes),
        block=checkpoint.config.residual_block,
        cache_bytes=wish.cache_bytes,
    )
    streamed = None
    if held.streams_experts:
        held = replace(held, packed_experts=kernel_choice(target).uses_triton)
        streamed, stages = _streaming(asked, held, wish, host_free_bytes)
        why_experts = _why_streamed(held, streamed, dtype)
    else:
        held, stages, why_experts = _resident(asked, held, wish.experts, type_name(dtype))
    if (tight := next((stage for stage in stages if not stage.fits), None)) is not None:
        raise _too_large(asked, held, stages, tight, where=str(checkpoint.folder))
    return Choice(
        checkpoint=checkpoint,
        target=target,
        layers=wish.layers,
        has_ends=has_ends,
        packed_experts=held.packed_experts,
        streamed=streamed,
        stages=stages,
        reasons=(why_device, why_type, why_experts, *_why_stages(asked, stages)),
    )


def _resident(
    asked: _Asked, held: Held, form: str, dtype: str
) -> tuple[Held, tuple[MemoryPlan, ...], str]:
    """Experts in memory: as was asked, else spelled out where they fit so."""
    stages = asked.stages(held)
    if form:
        name = "packed" if held.packed_experts else "spelled out"
        return held, stages, f"experts {name}: asked for"
    if all(stage.fits for stage in stages):
        return held, stages, f"experts spelled out in {dtype}: they fit"
    held = replace(held, packed_experts=True)
    return held, asked.stages(held), "experts packed: spelled out they would not fit"


def _streaming(
    asked: _Asked, held: Held, wish: Wish, host_free_bytes: int
) -> tuple[Budget | None, tuple[MemoryPlan, ...]]:
    """Experts from the files: what may be kept of them, and the plans with that."""
    stages, sizes = asked.stages(held), expert_sizes(asked.shape, held)
    if not sizes.count or not all(stage.fits for stage in stages):
        return None, stages
    budget = expert_budget(
        sizes,
        stages,
        host_free_bytes=host_free_bytes,
        stored_bytes=wish.experts_stored_bytes,
        ready_bytes=wish.experts_ready_bytes,
    )
    return budget, with_experts(stages, sizes, budget)


def _why_streamed(held: Held, budget: Budget | None, dtype: torch.dtype) -> str:
    if budget is None:
        return "experts streamed: there are none in these layers"
    form = "packed" if held.packed_experts else f"spelled out in {type_name(dtype)}"
    return (
        f"experts streamed: asked for; at most {budget.host_bytes:,} B as stored in host memory, "
        f"and {budget.device_bytes:,} B {form} on each device"
    )


def _why_stages(asked: _Asked, stages: tuple[MemoryPlan, ...]) -> tuple[str, ...]:
    """Where the layers go, if there is more than one device."""
    if len(asked.places) == 1:
        return ()
    parts = [f"{_span(stage.layers)} on {stage.device}" for stage in stages]
    cut = any(asked.block and stage.layers.start % asked.block for stage in stages[1:])
    why = "blocks are cut, as whole ones do not fit" if cut else "blocks stay whole"
    if not asked.block:
        why = "balanced by bytes"
    if len(stages) < len(asked.places):
        why += f"; the last {len(asked.places) - len(stages)} of the devices get none"
    return (f"layers {', '.join(parts)}: {why}",)


def _span(layers: range) -> str:
    return f"{layers.start}-{layers.stop - 1}"


def _check_layers(layers: range | None, num_layers: int) -> None:
    if layers is not None and layers.stop > num_layers:
        raise InputError(
            f"there are {num_layers} layers, numbered from 0",
            where=f"--layers {layers.start}-{layers.stop - 1}",
            remedy=f"name layers from 0 to {num_layers - 1}",
        )


def _with_cache(
    load: Load, shape: Shape, engine: Engine, held: Held, cache_bytes: int | None
) -> Load:
    """The load with as many tokens as a cache of so many bytes holds beside the states."""
    if cache_bytes is None:
        return load
    plan = memory_plan(shape, engine, held, load, device="cpu", free_bytes=0)
    room = cache_bytes - plan.line_bytes("state_bytes")
    page = engine.memory.page_tokens
    tokens = (
        room // plan.bytes_per_token // page * page if plan.bytes_per_token else load.num_tokens
    )
    if tokens < page:
        least = plan.line_bytes("state_bytes") + page * plan.bytes_per_token
        raise RefusedError(
            "the cache holds no page beside the states of all requests",
            where=f"--kv-memory {cache_bytes:,} B",
            remedy=f"give at least {least:,} B, or fewer requests by --max-num-seqs",
        )
    longest = min(load.max_model_len, tokens)
    return replace(load, max_model_len=longest, num_tokens=tokens)


def _too_large(
    asked: _Asked, held: Held, stages: tuple[MemoryPlan, ...], tight: MemoryPlan, *, where: str
) -> RefusedError:
    """The refusal for one device, with what would fit."""
    longest = min(longest_context(stage) for stage in stages)
    beside = tight.total_bytes - tight.weights_bytes
    count = most_layers(asked.shape, held, room_bytes=tight.free_bytes - beside)
    on = tight.device if len(stages) == 1 else f"{tight.device}, layers {_span(tight.layers)}"
    if held.streams_experts and not longest:
        remedy = "give --experts-stored and --experts-ready less, or name fewer --layers"
    elif longest:
        remedy = f"use --max-model-len {longest}, or fewer than {tight.load.num_requests} requests"
        remedy += " by --max-num-seqs"
    elif len(stages) > 1:
        remedy = "name more devices by --device, or fewer layers by --layers"
    elif count:
        first = held.layers.start
        remedy = f"use --layers {first}-{first + count - 1}: these fit"
    else:
        remedy = "no layer fits either: use a machine with more memory, or a tiny checkpoint"
    if not longest and not held.streams_experts and _fits_streamed(asked, held):
        remedy += "; or --experts streamed, which reads experts when they are needed"
    return RefusedError(
        f"{tight.total_bytes / 2**30:,.2f} GiB are needed, "
        f"{tight.weights_bytes / 2**30:,.2f} of it for weights; "
        f"{tight.free_bytes / 2**30:,.2f} GiB are free",
        where=f"{where} on {on}",
        remedy=remedy,
        rule="embedded-memory",
    )


def _fits_streamed(asked: _Asked, held: Held) -> bool:
    held = replace(held, streams_experts=True)
    sizes = expert_sizes(asked.shape, held)
    return sizes.count > 0 and has_room(asked.stages(held), sizes)


def require_ends(choice: Choice) -> None:
    """Raise RefusedError where no token can be read or said, for want of embedding and head."""
    if not choice.has_ends:
        raise RefusedError(
            "the embedding and the head are not in this part of a checkpoint",
            where=str(choice.checkpoint.folder),
            remedy="k31ctl smoke --layers runs these layers; fetch --tensors adds the rest",
            rule="embedded-ends",
        )


def loaded(choice: Choice) -> Model:
    """Read the weights that were planned for, and keep nothing else."""
    model = load_model(
        choice.checkpoint,
        choice.target,
        layers=choice.layers,
        packed_experts=choice.packed_experts,
        streamed=choice.streamed,
        devices={n: torch.device(stage.device) for stage in choice.stages for n in stage.layers},
    )
    emptied()
    return model


def emptied() -> None:
    """Give memory that nobody needs any more back to the machine and the devices."""
    gc.collect()
    with suppress(AttributeError, OSError):  # glibc alone has it, and keeps what was freed
        ctypes.CDLL(None).malloc_trim(0)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
