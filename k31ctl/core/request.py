"""What a plan is asked for, in base units, and what it is made of."""

from typing import TYPE_CHECKING

from k31ctl.core.costing import CostRequest
from k31ctl.core.draft import Draft
from k31ctl.core.engine import Engine
from k31ctl.core.hardware import Node
from k31ctl.core.kv_cache import IndexFormat, KvFormat, StateDtype
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.model import Model
from k31ctl.core.offload import Tier
from k31ctl.core.price_choice import PriceBook
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.core.workload import AskedWorkload
from k31ctl.errors import UsageError
from k31ctl.values import frozen

if TYPE_CHECKING:
    from k31ctl.core.simulation_request import SimulationRequest


@frozen
class PlanRequest:
    """What was asked, in base units; None leaves a value to the engine's own default."""

    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    layout: AskedLayout
    kv_dtype: KvFormat | None
    index_dtype: IndexFormat | None
    state_dtype: StateDtype
    kv_memory_bytes: int | None
    max_model_len: int | None
    prefix_caching: bool
    draft_tokens: int | None
    replay_ssm: bool
    state_slots: int | None
    chunk_tokens: int | None
    memory_fraction: float | None
    state_ratio: float | None
    text_only: bool
    image: tuple[int, int] | None
    lora_rank: int | None
    offload: Tier | None
    resident_experts: int | None
    workload: AskedWorkload
    cost: CostRequest
    simulation: "SimulationRequest | None"


@frozen
class Parts:
    """The things a plan is made of; without ``prices`` it says nothing of money."""

    model: Model
    node: Node
    engine: Engine
    draft: Draft | None
    speed: SpeedParameters
    prices: PriceBook | None


def check_request(parts: Parts, request: PlanRequest) -> None:
    """Refuse numbers that cannot be; raises UsageError naming the flag."""
    limit = parts.model.max_position_embeddings
    longest = max(request.contexts)
    if longest > limit:
        raise UsageError(
            f"a context of {longest:,} tokens is beyond the {limit:,} of {parts.model.name}",
            where="--context",
            remedy=f"give at most {limit}",
        )
    if request.max_model_len is not None:
        if request.max_model_len > limit:
            raise UsageError(
                f"{request.max_model_len:,} tokens are beyond the {limit:,} of {parts.model.name}",
                where="--max-model-len",
                remedy=f"give at most {limit}",
            )
        if longest > request.max_model_len:
            raise UsageError(
                f"a context of {longest:,} tokens is beyond --max-model-len "
                f"{request.max_model_len:,}",
                where="--max-model-len",
                remedy="raise it, or ask for shorter contexts",
            )
    if request.memory_fraction is not None and not 0 < request.memory_fraction <= 1:
        raise UsageError(
            f"{request.memory_fraction} is not a fraction between 0 and 1",
            where="--memory-fraction",
            remedy="give a value such as 0.92",
        )
    if request.image is not None and parts.model.vision is None:
        raise UsageError(
            f"{parts.model.name} takes no images", where="--image", remedy="leave --image out"
        )
