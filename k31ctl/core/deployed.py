"""A deployment that is settled, asked for its speed under one load after another."""

from dataclasses import replace
from math import inf

from k31ctl.core.asked_deployment import AskedDeployment, request_for
from k31ctl.core.deployment import Deployment, deployment
from k31ctl.core.hardware import Node
from k31ctl.core.layout import Layout
from k31ctl.core.performance import Performance, performance
from k31ctl.core.prediction import Case, case_of
from k31ctl.core.request import Parts, PlanRequest
from k31ctl.core.simulation_request import SimulationRequest
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.core.speed_plan import drafting, speed_why_not
from k31ctl.core.workload import Workload
from k31ctl.errors import RefusedError
from k31ctl.values import frozen


@frozen
class Deployed:
    """What every load of one deployment shares."""

    parts: Parts
    asked: AskedDeployment
    built: Deployment
    case: Case

    @property
    def named(self) -> str:
        """The deployment as failures and tables name it."""
        engine = self.parts.engine
        place = layout_words(self.parts.node, self.built.layout)
        return f"{self.parts.model.id} on {place}, {engine.engine}@{engine.version}"

    def most_running(self, load: Workload) -> int:
        """Requests of this length that the cache of one attention group holds."""
        length = load.prompt_tokens + load.output_tokens
        limit = self.asked.max_model_len or self.parts.model.max_position_embeddings
        return self.built.pool.max_requests(length) if length <= limit else 0

    def performance(
        self, load: Workload, speed: SpeedParameters | None = None, *, num_rounds: float = inf
    ) -> Performance:
        """The speed in a closed loop; raises RefusedError where the cache holds no request."""
        most = self.most_running(load)
        if most < 1:
            raise self._refused(
                f"it serves no request of {load.prompt_tokens + load.output_tokens:,} tokens"
            )
        parameters = speed or self.parts.speed
        return performance(
            self.case,
            self.case.step(parameters),
            parameters,
            load,
            most_running=most,
            num_rounds=num_rounds,
        )

    def played(self, load: Workload, simulation: SimulationRequest) -> Performance:
        """The speed at a rate of arrivals, played out; raises RefusedError as above."""
        from k31ctl.core.plan import plan  # noqa: PLC0415  a closed loop needs no plan

        request = _request(self.asked, load)
        found = plan(self.parts, replace(request, simulation=simulation)).speed
        if found.performance is None:
            raise self._refused(found.why_not)
        return found.performance

    def _refused(self, why: str) -> RefusedError:
        return RefusedError(
            f"the plan says nothing of this load: {why}",
            where=self.named,
            remedy="plan a deployment that holds the load that was measured",
        )


def layout_words(node: Node, layout: Layout) -> str:
    """Nodes and layout as calibrations and failures name them."""
    return f"{layout.nodes} x {node.id}, {layout.text}"


def deployed(parts: Parts, asked: AskedDeployment) -> Deployed:
    """Settle a deployment; raises RefusedError where it has no speed."""
    any_load = Workload(
        prompt_tokens=1, output_tokens=1, cached_fraction=0.0, concurrency=1, rate_per_s=None
    )
    request = _request(asked, any_load)
    built = deployment(parts, request)
    depth, kept = drafting(parts, request, built)
    found = Deployed(
        parts=parts,
        asked=asked,
        built=built,
        case=case_of(parts, built, draft_tokens=depth, tokens_per_step=kept),
    )
    why_not = speed_why_not(parts, request, built)
    if why_not:
        raise RefusedError(
            f"the plan says nothing of speed: {why_not}",
            where=found.named,
            remedy="plan a deployment that fits, on hardware whose rates are known",
        )
    return found


def _request(asked: AskedDeployment, load: Workload) -> PlanRequest:
    return request_for(
        asked,
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        cached_fraction=load.cached_fraction,
        concurrency=load.concurrency,
        rate_per_s=load.rate_per_s,
    )
