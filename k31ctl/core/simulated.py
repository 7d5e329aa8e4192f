"""A load simulated on a deployment: where no closed form is honest, arrivals are played out."""

from k31ctl.core.arrivals import (
    ClosedLoop,
    Load,
    OpenLoop,
    RequestSize,
    poisson_arrivals,
)
from k31ctl.core.batching import Batching, KvBudget, Policy
from k31ctl.core.deployment import Deployment
from k31ctl.core.engine import Engine
from k31ctl.core.pools import BlockPool, Pool, SharedPool, SplitPool
from k31ctl.core.prediction import Case
from k31ctl.core.served import Summary
from k31ctl.core.service import decode_latency_s
from k31ctl.core.simulate import simulate
from k31ctl.core.simulation_request import SimulationRequest
from k31ctl.core.slo import Goodput, goodput
from k31ctl.core.step import StepModel
from k31ctl.core.workload import Workload
from k31ctl.values import frozen

# SGLang admits a request when there is room for about so much of what it may still write.
RESERVED_OUTPUT_FRACTION = 0.7
UNLIMITED = 1 << 30
LEAST_REQUESTS = 200
ROUNDS = 6
MOST_REQUESTS = 4000


@frozen
class Simulated:
    """What came of it on the whole deployment.

    ``summary`` is of one attention group, which has its share of the load; ``num_groups`` of them
    have any, and ``output_tok_s`` is of all.
    """

    summary: Summary
    goodput: Goodput | None
    num_groups: int
    output_tok_s: float
    total_tok_s: float
    seed: int
    notes: tuple[str, ...]


class SimulatedStep:
    """The step model as the simulation asks for it.

    A mixed step costs its chunk and its decoding one after the other: weights that both read are
    counted twice, which errs on the slow side. Chunks of a pipeline follow one another at the
    slowest stage's pace.
    """

    def __init__(self, case: Case, step: StepModel) -> None:
        self._case, self._step = case, step

    def step_s(
        self,
        *,
        num_decoding: int,
        context_tokens: float,
        prefill_tokens: int,
        prefill_past_tokens: float,
    ) -> float:
        """Seconds of one step."""
        seconds = 0.0
        if num_decoding:
            seconds += decode_latency_s(
                self._step,
                sequences=num_decoding,
                context_tokens=context_tokens,
                positions=self._case.positions,
            )
        if prefill_tokens:
            times = self._step.prefill_s(
                tokens=prefill_tokens,
                past_tokens=prefill_past_tokens + prefill_tokens / 2,
                sequences=1.0,
            )
            seconds += max(times) if self._step.replica.pp > 1 and num_decoding else sum(times)
        return seconds


def kv_budget(pool: Pool) -> KvBudget:
    """The engine's cache in the units that its requests hold."""
    match pool:
        case BlockPool():
            return KvBudget(
                total_units=max(0, pool.num_blocks - 1),
                page_tokens=pool.block_tokens * pool.dcp,
                units_per_page=pool.full_groups,
                fixed_units=pool.linear_groups * pool.slots,
            )
        case SplitPool():
            return KvBudget(
                total_units=pool.num_tokens // pool.page_tokens,
                page_tokens=pool.page_tokens,
                units_per_page=1,
                fixed_units=0,
            )
        case SharedPool():
            return KvBudget(
                total_units=pool.pool_bytes,
                page_tokens=pool.page_tokens,
                units_per_page=pool.bytes_per_page,
                fixed_units=pool.state_bytes,
            )
    raise ValueError(f"no budget is known for a {type(pool).__name__}")


def batching_of(engine: Engine, pool: Pool, case: Case) -> Batching:
    """The scheduler's rules: vLLM mixes and preempts, SGLang prefills first and reserves."""
    most = UNLIMITED
    if isinstance(pool, SplitPool) and pool.slots_per_request:
        most = max(1, pool.num_slots // pool.slots_per_request)
    return Batching(
        policy=Policy.PREFILL_FIRST if engine.prefill_first else Policy.MIXED,
        chunk_tokens=case.chunk_tokens,
        budget_per_decode=0 if engine.prefill_first else case.positions,
        max_running=most,
        reserved_output_fraction=RESERVED_OUTPUT_FRACTION if engine.prefill_first else 0.0,
        tokens_per_step=min(case.tokens_per_step, case.chunk_tokens),
    )


def simulated(
    case: Case, step: StepModel, built: Deployment, load: Workload, request: SimulationRequest
) -> Simulated:
    """Play a load out on one attention group; raises RefusedError where no request fits."""
    groups = case.layout.dp
    found = simulate(
        _load(load, request, groups),
        batching=batching_of(case.engine, built.pool, case),
        kv=kv_budget(built.pool),
        cost=SimulatedStep(case, step),
    )
    busy = _busy(load, request, groups)
    return Simulated(
        summary=found.summary,
        goodput=goodput(request.slo, found.records, found.summary) if request.slo else None,
        num_groups=busy,
        output_tok_s=busy * found.summary.output_tok_s,
        total_tok_s=busy * found.summary.total_tok_s,
        seed=request.seed,
        notes=request.trace_notes,
    )


def _busy(load: Workload, request: SimulationRequest, groups: int) -> int:
    """Groups that have a request at all."""
    if request.trace is not None:
        return min(groups, len(request.trace.arrivals))
    return groups if load.concurrency is None else min(groups, load.concurrency)


def _load(load: Workload, request: SimulationRequest, groups: int) -> Load:
    """One group's share: arrivals of a trace in turn, its part of a rate or of the users."""
    if request.trace is not None:
        return OpenLoop(arrivals=request.trace.arrivals[::groups])
    size = RequestSize(
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        cached_tokens=load.prompt_tokens - load.uncached_tokens,
    )
    if load.rate_per_s is not None:
        sizes = (size,) * LEAST_REQUESTS * 5
        return poisson_arrivals(sizes, rate_per_s=load.rate_per_s / groups, random=request.random)
    assert load.concurrency is not None
    users = max(1, round(load.concurrency / groups))
    num_requests = min(max(ROUNDS * users, LEAST_REQUESTS), max(MOST_REQUESTS, users))
    return ClosedLoop(sizes=(size,) * num_requests, num_users=users, think_s=0.0)
