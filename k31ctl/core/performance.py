"""How fast a deployment serves one workload, how sure that is, and what bounds it."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, inf, sqrt
from typing import TYPE_CHECKING

from k31ctl.core.calibrated_spread import calibrated_spreads
from k31ctl.core.estimate import Bound, Estimate
from k31ctl.core.prediction import Case, busy_groups, prefill_tok_s_per_gpu, service_of
from k31ctl.core.service import Service
from k31ctl.core.speed_parameters import SpeedParameters, parameter
from k31ctl.core.step import Part, StepModel, spread_of
from k31ctl.core.workload import Workload
from k31ctl.values import frozen

if TYPE_CHECKING:
    from k31ctl.core.simulated import Simulated

# Standard deviations on either side that hold 90 % of a normal distribution.
INTERVAL = 1.645
PREFILL_CONCURRENCY = 64


@frozen
class Performance:
    """A deployment under one workload. Times in seconds, rates in tokens per second.

    ``running`` is how many requests decode at once on all replicas, ``waiting`` how many of those
    asked for do not fit the cache. ``prefill_share`` is the share of a request's machine time that
    its prompt takes.
    """

    workload: Workload
    running: float
    waiting: float
    ttft_s: Estimate
    tpot_s: Estimate
    itl_s: Estimate
    e2e_s: Estimate
    output_tok_s: Estimate
    total_tok_s_per_gpu: Estimate
    prefill_tok_s_per_gpu: Estimate
    tok_s_per_user: Estimate
    prefill_share: float
    bound_by: Bound
    decode_parts: tuple[Part, ...]
    prefill_parts: tuple[Part, ...]
    chunk_tokens: float


def performance(
    case: Case,
    step: StepModel,
    parameters: SpeedParameters,
    workload: Workload,
    *,
    most_running: float,
    num_rounds: float = inf,
) -> Performance:
    """What a deployment gives in a closed loop.

    ``most_running`` is what the cache of one attention group holds at the workload's length. The
    low and high ends hold 90 %: parts err independently, each by the spread of its parameter, or
    together by the covariance of a calibration; what a fitted model still misses comes on top.
    ``num_rounds`` is as in ``service_of``.
    """
    assert workload.concurrency is not None
    service = service_of(case, step, workload, most_running=most_running, num_rounds=num_rounds)
    decode = decode_parts_of(case, step, workload, service)
    prefill, chunk = prefill_parts_of(case, step, workload, service)
    spread = _Spread(parameters, decode, prefill)
    groups, gpus = busy_groups(case, concurrency=workload.concurrency), case.layout.world
    rate = groups * service.requests_per_s
    output = workload.output_tokens
    decoding = service.decode_s * (output - 1) / case.tokens_per_step
    share = service.prefill_s / (service.prefill_s + decoding)
    of = spread.by_figure(share, queued=service.queue_s > 0)
    if parameters.calibration is not None:
        of = calibrated_spreads(
            case,
            parameters,
            parameters.calibration,
            workload,
            most_running=most_running,
            prefill_concurrency=PREFILL_CONCURRENCY * case.layout.dp,
        )
    return Performance(
        workload=workload,
        running=service.running * groups,
        waiting=max(0.0, workload.concurrency - service.running * groups),
        ttft_s=spread.of("ttft_s", service.ttft_s, of["ttft_s"]),
        tpot_s=spread.of("tpot_s", service.tpot_s, of["tpot_s"]),
        itl_s=spread.of("itl_s", service.decode_s, of["itl_s"]),
        e2e_s=spread.of("e2e_s", service.e2e_s, of["e2e_s"]),
        output_tok_s=spread.of("output_tok_s", rate * output, of["output_tok_s"]),
        total_tok_s_per_gpu=spread.of(
            "output_tok_s",
            rate * (workload.prompt_tokens + output) / gpus,
            of["output_tok_s"],
        ),
        prefill_tok_s_per_gpu=spread.of(
            "prefill_tok_s",
            prefill_tok_s_per_gpu(
                case,
                step,
                concurrency=PREFILL_CONCURRENCY * case.layout.dp,
                prompt_tokens=workload.uncached_tokens,
                past_tokens=workload.prompt_tokens - workload.uncached_tokens,
            ),
            of["prefill_tok_s"],
        ),
        tok_s_per_user=spread.of("tpot_s", 1 / service.tpot_s, of["tpot_s"]),
        prefill_share=share,
        bound_by=_bound(service, decode, prefill, share),
        decode_parts=tuple(decode),
        prefill_parts=tuple(prefill),
        chunk_tokens=chunk,
    )


def decode_parts_of(
    case: Case, step: StepModel, workload: Workload, service: Service
) -> list[Part]:
    """The parts of the decode step that the service runs, all stages together."""
    batches = min(step.replica.pp, max(1.0, service.running))
    return step.decode_parts(
        sequences=service.running / batches,
        context_tokens=workload.prompt_tokens + workload.output_tokens / 2,
        positions=case.positions,
    )


def prefill_parts_of(
    case: Case, step: StepModel, workload: Workload, service: Service
) -> tuple[list[Part], float]:
    """The parts of a prefill chunk that the service runs, and its tokens."""
    uncached = workload.uncached_tokens
    total = service.running * uncached
    tokens = total / max(1.0, total / case.chunk_tokens)
    past = workload.prompt_tokens - uncached + uncached / 2
    parts = step.prefill_parts(
        tokens=tokens, past_tokens=past, sequences=max(1.0, tokens / uncached)
    )
    return parts, tokens


def as_simulated(
    found: Performance, played: "Simulated", load: Workload, *, gpus: int
) -> Performance:
    """The figures of a run that was played out, with the relative intervals of the closed form.

    ITL stays a decode step of as many requests as ran on average: the run's own is the longest gap
    that a request saw, which is another figure.
    """
    summary = played.summary
    tpot = summary.tpot or summary.ttft
    waiting = played.num_groups * summary.mean_waiting
    queued = waiting > played.num_groups * summary.mean_running
    return replace(
        found,
        workload=load,
        running=played.num_groups * summary.mean_running,
        waiting=waiting,
        ttft_s=_moved(found.ttft_s, summary.ttft.mean_s),
        tpot_s=_moved(found.tpot_s, tpot.mean_s),
        e2e_s=_moved(found.e2e_s, summary.e2e.mean_s),
        output_tok_s=_moved(found.output_tok_s, played.output_tok_s),
        total_tok_s_per_gpu=_moved(found.total_tok_s_per_gpu, played.total_tok_s / gpus),
        tok_s_per_user=_moved(found.tok_s_per_user, 1 / tpot.mean_s),
        prefill_share=summary.prefill_fraction,
        bound_by=Bound.QUEUE if queued else found.bound_by,
    )


def _moved(estimate: Estimate, value: float) -> Estimate:
    return estimate.scaled(value / estimate.value)


class _Spread:
    """Turns values into estimates: spreads of the parts, and of the model by quantity."""

    def __init__(
        self, parameters: SpeedParameters, decode: Sequence[Part], prefill: Sequence[Part]
    ) -> None:
        self._table = parameters.model_spread
        self.decode, self.prefill = spread_of(decode), spread_of(prefill)

    def mixed(self, prefill_share: float) -> float:
        """Spread of a time that is prefill in part and decoding for the rest."""
        return sqrt((prefill_share * self.prefill) ** 2 + ((1 - prefill_share) * self.decode) ** 2)

    def by_figure(self, prefill_share: float, *, queued: bool) -> dict[str, float]:
        """Spread of each figure whose parts err independently."""
        both = self.mixed(prefill_share)
        return {
            "ttft_s": both if queued else self.prefill,
            "tpot_s": both,
            "itl_s": self.decode,
            "e2e_s": both,
            "output_tok_s": both,
            "prefill_tok_s": self.prefill,
        }

    def of(self, quantity: str, value: float, spread: float) -> Estimate:
        """The value with its 90 % interval."""
        model = parameter(self._table, quantity).value
        factor = exp(INTERVAL * sqrt(spread**2 + model**2))
        return Estimate(value=value, low=value / factor, high=value * factor)


def _bound(
    service: Service, decode: Sequence[Part], prefill: Sequence[Part], prefill_share: float
) -> Bound:
    """The resource that takes most of a request's time, waiting included."""
    times = dict.fromkeys(Bound, 0.0)
    times[Bound.QUEUE] = service.queue_s
    for parts, seconds in (
        (decode, service.period_s * (1 - prefill_share)),
        (prefill, service.period_s * prefill_share),
    ):
        total = sum(part.seconds for part in parts)
        for part in parts:
            times[part.bound_by] += seconds * part.seconds / total
    return max(times, key=times.__getitem__)
