"""What a plan was asked for and of what, in words that make the same deployment again."""

from dataclasses import fields

from k31ctl.core.costing import NO_WISHES
from k31ctl.core.kv_cache import IndexFormat, KvFormat, StateDtype
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.offload import Tier
from k31ctl.core.request import PlanRequest
from k31ctl.core.workload import AskedWorkload
from k31ctl.values import frozen

_SAME = (
    "kv_dtype",
    "index_dtype",
    "state_dtype",
    "kv_memory_bytes",
    "max_model_len",
    "prefix_caching",
    "draft_tokens",
    "replay_ssm",
    "state_slots",
    "chunk_tokens",
    "memory_fraction",
    "state_ratio",
    "text_only",
    "offload",
    "resident_experts",
)


@frozen
class AskedDeployment:
    """A deployment without its load; model, hardware and files as they were named.

    ``engine`` has its version. None leaves a value to the engine's own default.
    """

    model: str
    hardware: str
    engine: str
    draft: str | None
    calibration: str | None
    profiles: tuple[str, ...]
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
    offload: Tier | None
    resident_experts: int | None
    accepted_tokens: float | None


def asked_deployment(
    request: PlanRequest,
    *,
    model: str,
    hardware: str,
    engine: str,
    draft: str | None,
    calibration: str | None,
    profiles: tuple[str, ...],
) -> AskedDeployment:
    """The deployment of a request, its load left out."""
    return AskedDeployment(
        model=model,
        hardware=hardware,
        engine=engine,
        draft=draft,
        calibration=calibration,
        profiles=profiles,
        layout=request.layout,
        accepted_tokens=request.workload.accepted_tokens,
        **{name: getattr(request, name) for name in _SAME},
    )


def request_for(
    asked: AskedDeployment,
    *,
    prompt_tokens: int,
    output_tokens: int,
    cached_fraction: float,
    concurrency: int | None,
    rate_per_s: float | None,
) -> PlanRequest:
    """A request for this deployment under one load, and for nothing beside its speed."""
    own = {f.name: getattr(asked, f.name) for f in fields(asked) if f.name in _SAME}
    return PlanRequest(
        contexts=(prompt_tokens + output_tokens,),
        batches=(1,),
        layout=asked.layout,
        image=None,
        lora_rank=None,
        cost=NO_WISHES,
        simulation=None,
        workload=AskedWorkload(
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            cached_fraction=cached_fraction,
            concurrency=concurrency,
            rate_per_s=rate_per_s,
            accepted_tokens=asked.accepted_tokens,
        ),
        **own,
    )
