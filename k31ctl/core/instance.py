"""One deployment with one job: to prefill, to decode, or to do both."""

from dataclasses import replace

from k31ctl.core.deployment import Deployment, deployment
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.prediction import Case, case_of
from k31ctl.core.request import Parts, PlanRequest
from k31ctl.core.speed_plan import drafting
from k31ctl.core.step import StepModel
from k31ctl.core.workload import Workload
from k31ctl.errors import RefusedError
from k31ctl.values import frozen


@frozen
class Instance:
    """One deployment with one job; ``most_running`` is what an attention group's cache holds."""

    parts: Parts
    built: Deployment
    case: Case
    step: StepModel
    most_running: float

    @property
    def num_gpus(self) -> int:
        """GPUs of the instance."""
        return self.case.layout.world

    @property
    def num_nodes(self) -> int:
        """Nodes that the instance takes; one that is filled in part counts whole."""
        return -(-self.num_gpus // self.parts.node.num_gpus)


def instance(
    parts: Parts, request: PlanRequest, layout: AskedLayout, workload: Workload
) -> Instance:
    """The deployment of one role; raises RefusedError where it does not hold a single request."""
    asked = replace(request, layout=layout)
    built = deployment(parts, asked)
    length = workload.prompt_tokens + workload.output_tokens
    most = built.pool.max_requests(length) if built.loads else 0
    if most < 1:
        raise RefusedError(
            f"{parts.model.name} does not serve a request of {length:,} tokens as "
            f"{built.layout.text} on {layout.nodes} x {parts.node.id}",
            where="--disaggregate",
            remedy="give each instance more nodes or a wider layout, such as 1xTP8xPP2",
            rule="disaggregation-fits",
            source="the memory model",
        )
    depth, kept = drafting(parts, asked, built)
    case = case_of(parts, built, draft_tokens=depth, tokens_per_step=kept)
    return Instance(
        parts=parts, built=built, case=case, step=case.step(parts.speed), most_running=most
    )
