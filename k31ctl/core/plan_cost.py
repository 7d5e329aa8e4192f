"""What a plan costs: its own speed and GPUs under the catalog's prices."""

from k31ctl.core.cost import Cost, Mix, served
from k31ctl.core.costing import Unpriced, costed
from k31ctl.core.deployment import Deployment
from k31ctl.core.request import Parts, PlanRequest
from k31ctl.core.speed_plan import SpeedPlan


def plan_cost(
    parts: Parts, request: PlanRequest, built: Deployment, speed: SpeedPlan
) -> Cost | Unpriced | None:
    """The cost at the load that was asked for; None where there is no speed, or no prices."""
    found = speed.performance
    if found is None or parts.prices is None:
        return None
    load = found.workload
    mix = Mix(
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        cached_fraction=load.cached_fraction,
    )
    at_full_load = served(
        num_gpus=built.layout.num_gpus,
        requests_per_s=found.output_tok_s.scaled(1 / load.output_tokens),
        mix=mix,
        prefill_time_fraction=found.prefill_share,
    )
    return costed(
        parts.prices,
        request.cost,
        node=parts.node,
        num_nodes=built.layout.nodes,
        model=parts.model.id,
        served=at_full_load,
        mix=mix,
    )
