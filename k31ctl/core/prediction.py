"""A deployment under one load, and what the speed model says of it."""

from math import inf

from k31ctl.core.deployment import Deployment
from k31ctl.core.engine import Engine
from k31ctl.core.hardware import Node
from k31ctl.core.layout import Layout, stage_bounds
from k31ctl.core.rates import rates
from k31ctl.core.request import Parts
from k31ctl.core.service import Service, Steps, closed_loop, prefill_rate
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.core.step import Replica, StepModel
from k31ctl.core.traffic import Traffic, traffic
from k31ctl.core.workload import Workload
from k31ctl.values import frozen


@frozen
class Case:
    """What a prediction needs beside the parameters; nothing in it changes while they are fitted.

    ``positions`` tokens of each sequence go through a step and ``tokens_per_step`` of them are
    kept (1 and 1.0 without a draft model).
    """

    counted: Traffic
    node: Node
    engine: Engine
    layout: Layout
    kernel: str | None
    positions: int
    tokens_per_step: float
    chunk_tokens: int

    def step(self, parameters: SpeedParameters) -> StepModel:
        """The step model under these parameters."""
        found = rates(
            parameters,
            node=self.node,
            engine=self.engine,
            layout=self.layout,
            kernel=self.kernel,
        )
        return StepModel(self.counted, found, replica_of(self.layout))


def replica_of(layout: Layout) -> Replica:
    """How the ranks of a layout work on one step together."""
    return Replica(
        groups=layout.dp,
        attention_ranks=layout.attention_tp,
        moe_ranks=layout.expert_world,
        exchanges_tokens=layout.dp > 1,
        dcp=layout.dcp,
        pp=layout.pp,
    )


def case_of(
    parts: Parts,
    built: Deployment,
    *,
    kernel: str | None = None,
    draft_tokens: int = 0,
    tokens_per_step: float = 1.0,
) -> Case:
    """The case of a deployment."""
    layout = built.layout
    counted = traffic(
        parts.model,
        engine=parts.engine,
        layout=layout,
        gpu=parts.node.gpu.architecture,
        rows=built.rows,
        bounds=stage_bounds(parts.model.num_layers, layout),
        draft=parts.draft,
    )
    return Case(
        counted=counted,
        node=parts.node,
        engine=parts.engine,
        layout=layout,
        kernel=kernel,
        positions=1 + draft_tokens,
        tokens_per_step=tokens_per_step,
        chunk_tokens=built.reserved.chunk_tokens,
    )


def service_of(
    case: Case,
    step: Steps,
    workload: Workload,
    *,
    most_running: float,
    num_rounds: float = inf,
) -> Service:
    """A closed loop on one attention group of the deployment; groups share the requests evenly.

    ``most_running`` is what the cache of one group holds. ``num_rounds`` is how many requests each
    user sends, the first of which all arrive at once.
    """
    assert workload.concurrency is not None
    return closed_loop(
        step,
        concurrency=max(1.0, workload.concurrency / case.layout.dp),
        most_running=most_running,
        prompt_tokens=workload.prompt_tokens,
        uncached_tokens=workload.uncached_tokens,
        output_tokens=workload.output_tokens,
        positions=case.positions,
        tokens_per_step=case.tokens_per_step,
        chunk_tokens=case.chunk_tokens,
        staggered_fraction=case.engine.staggered * (1 - 1 / num_rounds),
    )


def busy_groups(case: Case, *, concurrency: float) -> float:
    """Attention groups that have a request: all, or one for each of fewer requests.

    The others take part in every step without tokens of their own.
    """
    return min(float(case.layout.dp), max(1.0, concurrency))


def prefill_tok_s_per_gpu(
    case: Case, step: StepModel, *, concurrency: float, prompt_tokens: int, past_tokens: int
) -> float:
    """Prompt tokens per second and GPU of a deployment that does nothing but prefill.

    ``past_tokens`` of each request lie in the cache before its ``prompt_tokens``.
    """
    rate = prefill_rate(
        step,
        requests=max(1.0, concurrency / case.layout.dp),
        prompt_tokens=prompt_tokens,
        past_tokens=past_tokens,
        chunk_tokens=case.chunk_tokens,
    )
    return busy_groups(case, concurrency=concurrency) * rate / case.layout.world
