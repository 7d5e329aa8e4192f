"""From what is asked to a model that is ready: device, type, memory plan, and only then weights."""

import gc
from dataclasses import replace
from pathlib import Path
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
from k31ctl.core.model import Model as Shape
from k31ctl.engine.checkpoint import Checkpoint, load_config, load_model
from k31ctl.engine.model import Model
from k31ctl.engine.tensors import Kernels, Target
from k31ctl.errors import InputError, RefusedError
from k31ctl.values import frozen

DTYPES: Final = {"float32": torch.float32, "bf16": torch.bfloat16}
PIECE_TOKENS: Final = 512
_USUAL_TOKENS: Final = 8192
_TOWER: Final = "vision_tower."
_EMBEDDING: Final = "model.embed_tokens.weight"


@frozen
class Choice:
    """What was settled, each with its reason, and the memory that it takes."""

    target: Target
    layers: range | None
    has_ends: bool
    packed_experts: bool
    plan: MemoryPlan
    reasons: tuple[str, ...]


def chosen_device(asked: str) -> tuple[torch.device, str]:
    """The device and why; raises InputError for one that is not here."""
    if asked == "cpu":
        return torch.device("cpu"), "cpu: asked for"
    if not torch.cuda.is_available():
        if asked:
            raise InputError(
                f"torch {torch.__version__} sees no CUDA device",
                where=f"--device {asked}",
                remedy="use --device cpu, or a torch that was built for this driver",
            )
        return torch.device("cpu"), f"cpu: torch {torch.__version__} sees no CUDA device"
    try:
        index = int(asked.partition(":")[2] or 0)
        name = torch.cuda.get_device_name(index)
    except (ValueError, AssertionError, RuntimeError):
        raise InputError(
            "no such device", where=f"--device {asked[:40]}", remedy="use cpu, cuda or cuda:N"
        ) from None
    return torch.device("cuda", index), f"cuda:{index}, {name}: {'asked for' if asked else 'there'}"


def chosen_type(asked: str, device: torch.device) -> tuple[torch.dtype, str]:
    """The type that is computed in, and why."""
    if asked:
        return DTYPES[asked], f"{asked}: asked for"
    if device.type == "cpu":
        return (
            torch.float32,
            "float32: exact on a CPU, and as fast as bf16 without its instructions",
        )
    return torch.bfloat16, "bf16: the release's own type"


def free_bytes(device: torch.device, *, host_free_bytes: int) -> int:
    """Memory of a device that nobody uses now."""
    if device.type == "cpu":
        return host_free_bytes
    return int(torch.cuda.mem_get_info(device)[0])


def choose(
    folder: Path, shape: Shape, engine: Engine, wish: Wish, *, host_free_bytes: int
) -> Choice:
    """Settle everything and plan the memory; nothing is allocated.

    Raises RefusedError where it does not fit, saying what would.
    """
    _check_layers(wish.layers, shape.num_layers)
    device, why_device = chosen_device(wish.device)
    dtype, why_type = chosen_type(wish.dtype, device)
    kernels = Kernels.PLAIN if wish.is_plain else Kernels.AUTO
    target = Target(dtype=dtype, device=device, reordered=not wish.is_plain, kernels=kernels)
    names = Checkpoint(folder).files
    held = Held(
        layers=wish.layers or range(shape.num_layers),
        with_ends=wish.layers is None or any(name.endswith(_EMBEDDING) for name in names),
        element_bytes=dtype.itemsize,
        packed_experts=wish.experts == "packed",
        with_vision=any(name.startswith(_TOWER) for name in names),
    )
    longest = wish.max_model_len or min(load_config(folder).max_tokens, _USUAL_TOKENS)
    load = Load(
        num_requests=wish.num_requests,
        max_model_len=longest,
        num_tokens=longest * wish.num_requests,
        chunk_tokens=PIECE_TOKENS,
    )
    free = free_bytes(device, host_free_bytes=host_free_bytes)

    def planned(held: Held) -> MemoryPlan:
        room = _with_cache(load, shape, engine, held, wish.cache_bytes)
        return memory_plan(shape, engine, held, room, device=device.type, free_bytes=free)

    plan = planned(held)
    why_experts = f"experts {'packed' if held.packed_experts else 'spelled out'}: asked for"
    if not wish.experts:
        why_experts = f"experts spelled out in {_named(dtype)}: they fit"
        if not plan.fits:
            held = replace(held, packed_experts=True)
            plan = planned(held)
            why_experts = "experts packed: spelled out they would not fit"
    if not plan.fits:
        raise _too_large(shape, held, plan, folder)
    return Choice(
        target=target,
        layers=wish.layers,
        has_ends=held.with_ends,
        packed_experts=held.packed_experts,
        plan=plan,
        reasons=(why_device, why_type, why_experts),
    )


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


def _too_large(shape: Shape, held: Held, plan: MemoryPlan, folder: Path) -> RefusedError:
    """The refusal, with what would fit."""
    longest = longest_context(plan)
    beside = plan.total_bytes - plan.weights_bytes
    count = most_layers(shape, held, room_bytes=plan.free_bytes - beside)
    if longest:
        remedy = f"use --max-model-len {longest}, or fewer than {plan.load.num_requests} requests"
        remedy += " by --max-num-seqs"
    elif count:
        first = held.layers.start
        remedy = f"use --layers {first}-{first + count - 1}: these fit"
    else:
        remedy = "no layer fits either: use a machine with more memory, or a tiny checkpoint"
    return RefusedError(
        f"{plan.total_bytes / 2**30:,.2f} GiB are needed, {plan.weights_bytes / 2**30:,.2f} of it "
        f"for weights; {plan.free_bytes / 2**30:,.2f} GiB are free",
        where=f"{folder} on {plan.device}",
        remedy=remedy,
        rule="embedded-memory",
    )


def require_ends(folder: Path, choice: Choice) -> None:
    """Raise RefusedError where no token can be read or said, for want of embedding and head."""
    if not choice.has_ends:
        raise RefusedError(
            "the embedding and the head are not in this part of a checkpoint",
            where=str(folder),
            remedy="k31ctl smoke --layers runs these layers; fetch --tensors adds the rest",
            rule="embedded-ends",
        )


def loaded(folder: Path, choice: Choice) -> Model:
    """Read the weights that were planned for."""
    return load_model(
        folder, choice.target, layers=choice.layers, packed_experts=choice.packed_experts
    )


def emptied() -> None:
    """Give memory of models that are gone back to the devices."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _named(dtype: torch.dtype) -> str:
    return next(name for name, each in DTYPES.items() if each == dtype)
