"""Answers beside a plan's own, each only where it was asked for: a cold start, two pools."""

from dataclasses import replace

from k31ctl.core.asked_pools import AskedPools
from k31ctl.core.cold_start import ColdStart, cold_start
from k31ctl.core.deployment import deployment
from k31ctl.core.disaggregation import Disaggregation
from k31ctl.core.disaggregation_choice import disaggregation
from k31ctl.core.first_token import first_token
from k31ctl.core.plan import Plan
from k31ctl.core.prediction import case_of
from k31ctl.core.speed_plan import drafting
from k31ctl.core.storage import Rate, Startup, Storage
from k31ctl.core.workload import Workload
from k31ctl.errors import UsageError
from k31ctl.values import frozen


@frozen
class AskedStart:
    """What a cold start is asked about; ``reader`` None leaves the loader to the storage."""

    storage: Storage
    reader: str | None
    startup: Startup
    link: Rate
    warm_caches: bool


@frozen
class Further:
    """What was asked beside the plan; None where it was not."""

    cold_start: ColdStart | None
    pools: Disaggregation | None


def further(plan: Plan, *, start: AskedStart | None, pools: AskedPools | None) -> Further:
    """Answer what was asked; raises UsageError where there is no speed to answer from."""
    found = plan.speed.performance
    if found is None:
        raise UsageError(
            f"there is no speed to start from: {plan.speed.why_not}",
            where="--cold-start, --disaggregate",
            remedy="ask about a deployment that fits",
        )
    return Further(
        cold_start=_cold_start(plan, start) if start else None,
        pools=(disaggregation(plan.parts, plan.request, pools, _closed(plan)) if pools else None),
    )


def _closed(plan: Plan) -> Workload:
    """The load with as many requests as run at once: two pools are computed in a closed loop."""
    assert plan.speed.performance is not None
    load = plan.speed.performance.workload
    if load.concurrency is not None:
        return load
    running = max(1, round(plan.speed.performance.running))
    return replace(load, concurrency=running, rate_per_s=None)


def _cold_start(plan: Plan, asked: AskedStart) -> ColdStart:
    parts, request = plan.parts, plan.request
    built = deployment(parts, request)
    depth, kept = drafting(parts, request, built)
    case = case_of(parts, built, draft_tokens=depth, tokens_per_step=kept)
    assert plan.speed.performance is not None
    first = first_token(
        case,
        case.step(parts.speed),
        parts.speed,
        prompt_tokens=plan.speed.performance.workload.prompt_tokens,
    )
    return cold_start(
        parts,
        built,
        storage=asked.storage,
        reader=asked.reader,
        startup=asked.startup,
        link=asked.link,
        warm_caches=asked.warm_caches,
        first_token_s=first,
    )
