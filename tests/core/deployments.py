"""Real profiles, and one function that plans on them with a request's usual values."""

from dataclasses import fields, replace
from functools import cache
from typing import Any

from k31ctl.catalog.engines import load_draft, load_engine, resolve_engine
from k31ctl.catalog.hardware import load_node
from k31ctl.catalog.models import load_model
from k31ctl.catalog.prices import load_price_book
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.store import Store, default_folders
from k31ctl.core.costing import NO_WISHES
from k31ctl.core.hardware import Node
from k31ctl.core.kv_cache import StateDtype
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.model import Model
from k31ctl.core.plan import Parts, Plan, PlanRequest, plan
from k31ctl.core.price_choice import PriceBook
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.core.workload import AskedWorkload

GIB = 1 << 30
STORE = Store(default_folders())
USUAL = PlanRequest(
    contexts=(131_072,),
    batches=(1,),
    layout=AskedLayout(nodes=1, tp=None, pp=None, dp=None, ep=None, dcp=None),
    kv_dtype=None,
    index_dtype=None,
    state_dtype=StateDtype.FP32,
    kv_memory_bytes=None,
    max_model_len=None,
    prefix_caching=True,
    draft_tokens=None,
    replay_ssm=False,
    state_slots=None,
    chunk_tokens=None,
    memory_fraction=None,
    state_ratio=None,
    text_only=False,
    image=None,
    lora_rank=None,
    offload=None,
    resident_experts=None,
    workload=AskedWorkload(
        prompt_tokens=None,
        output_tokens=None,
        cached_fraction=0.0,
        concurrency=None,
        rate_per_s=None,
        accepted_tokens=None,
    ),
    cost=NO_WISHES,
    simulation=None,
)
WORKLOAD_FLAGS = tuple(field.name for field in fields(AskedWorkload))
LAYOUT_FLAGS = ("nodes", "tp", "pp", "dp", "ep", "dcp")


@cache
def model(model_id: str) -> Model:
    """A packaged model."""
    return load_model(STORE, model_id)


@cache
def node(node_id: str) -> Node:
    """A packaged node; ``roomy`` is 8x-b300 with 72 GPUs of a million MiB, for pure arithmetic."""
    if node_id == "roomy":
        b300 = load_node(STORE, "8x-b300")
        gpu = replace(b300.gpu, memory_bytes=10**12)
        return replace(b300, id="roomy", gpu=gpu, num_gpus=96, scale_up_domain_gpus=96)
    return load_node(STORE, node_id)


@cache
def speed() -> SpeedParameters:
    """The packaged parameters of the speed model."""
    return load_speed(STORE)


@cache
def prices() -> PriceBook:
    """Every packaged price list."""
    return load_price_book(STORE)


def parts(model_id: str, node_id: str, engine: str, draft: str | None = None) -> Parts:
    """A model on a node under an engine, ``vllm`` or ``vllm@main``."""
    return Parts(
        model=model(model_id),
        node=node(node_id),
        engine=resolve_engine(STORE, engine, model(model_id)),
        draft=load_draft(STORE, draft) if draft else None,
        speed=speed(),
        prices=prices(),
    )


def asked(**given: Any) -> PlanRequest:
    """The usual request with some values replaced; layout sizes by the names of their flags."""
    sizes = {name: given.pop(name) for name in LAYOUT_FLAGS if name in given}
    load = {name: given.pop(name) for name in WORKLOAD_FLAGS if name in given}
    layout = replace(USUAL.layout, **sizes)
    return replace(USUAL, layout=layout, workload=replace(USUAL.workload, **load), **given)


def planned(
    model_id: str = "kimi-k3",
    node_id: str = "8x-b300",
    engine: str = "vllm",
    draft: str | None = None,
    **given: Any,
) -> Plan:
    """A plan on packaged profiles."""
    return plan(parts(model_id, node_id, engine, draft), asked(**given))


__all__ = ["GIB", "STORE", "asked", "load_engine", "model", "node", "parts", "planned", "speed"]
