"""Which term of the speed model is likely off, where measurements and prediction part ways.

Each term in turn is made slower or faster by one factor for all stages of a run, everything else
left as planned. The term that then explains the measurements best is the likely one; terms that
explain them nearly as well are named beside it, since these loads cannot tell them apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from math import exp, log

from k31ctl.core.deployed import Deployed
from k31ctl.core.learning import figures
from k31ctl.core.observed import E2E, ITL, TPOT, TTFT, Observed
from k31ctl.core.prediction import service_of
from k31ctl.core.rates import Rates
from k31ctl.core.service import Service
from k31ctl.core.step import StepModel
from k31ctl.values import frozen

# Standard deviations of a logarithm: what a measurement may be off without anything being wrong.
SPREADS = {ITL: 0.10, TPOT: 0.10, E2E: 0.10, TTFT: 0.30}
# A term may well be off by half, and hardly ever by three times.
FACTOR_SPREAD = 0.5
MOST_FACTOR = 20.0
GRID, ROUNDS = 8, 3
# Twice the logarithm of how much likelier one term is than another before it stands alone.
CLEAR = 4.0
# Below this share of the misfit explained, no single term is named.
LEAST_EXPLAINED = 0.5


class Term(StrEnum):
    """A part of the decomposition that one factor can be wrong for."""

    MEMORY = "memory bandwidth"
    COMPUTE = "compute"
    LINK = "link"
    OVERHEAD = "overhead"
    QUEUEING = "queueing"


_SLOWER: dict[Term, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # Rates that are divided, and times that are multiplied, by the factor.
    Term.MEMORY: (
        (
            "dense_bytes_per_s",
            "expert_bytes_per_s",
            "attention_bytes_per_s",
            "state_bytes_per_s",
        ),
        (),
    ),
    Term.COMPUTE: (
        (
            "dense_flops_per_s",
            "expert_flops_per_s",
            "prefill_flops_per_s",
            "expert_prefill_flops_per_s",
        ),
        (),
    ),
    Term.LINK: (
        (
            "all_reduce_bytes_per_s",
            "moe_reduce_bytes_per_s",
            "all_to_all_bytes_per_s",
            "hop_bytes_per_s",
        ),
        ("all_reduce_s", "moe_reduce_s", "all_to_all_s", "hop_s"),
    ),
    Term.OVERHEAD: ((), ("layer_overhead_s", "prefill_layer_overhead_s", "step_overhead_s")),
}


@frozen
class Candidate:
    """One term, how many times slower than planned it would be, and the misfit it explains."""

    term: Term
    factor: float
    explained: float


@frozen
class Suspicion:
    """``likely`` is empty where nothing, or no single term, is off; ``text`` says which.

    ``candidates`` are all terms, the one that explains most first.
    """

    likely: tuple[Term, ...]
    text: str
    candidates: tuple[Candidate, ...]


def suspicion(deployed: Deployed, stages: Sequence[Observed], *, all_within: bool) -> Suspicion:
    """The term that is likely off; only closed loops are looked at."""
    closed = [s for s in stages if s.concurrency is not None and not s.why_not]
    if not closed:
        return Suspicion(
            likely=(), text="only a closed loop that is valid tells terms apart", candidates=()
        )
    planned = _misfit(deployed, closed, lambda step: step, _as_it_is)
    found = sorted(
        (_best(deployed, closed, term, planned) for term in Term), key=lambda pair: pair[0]
    )
    candidates = tuple(candidate for _, candidate in found)
    if all_within:
        return Suspicion(
            likely=(), text="none: all is within the plan's low and high", candidates=candidates
        )
    if candidates[0].explained < LEAST_EXPLAINED:
        return Suspicion(
            likely=(), text="no single term explains the misfit", candidates=candidates
        )
    near = [c for cost, c in found if cost - found[0][0] < CLEAR and c.explained >= LEAST_EXPLAINED]
    return Suspicion(
        likely=tuple(c.term for c in near),
        text=" or ".join(map(_said, near)),
        candidates=candidates,
    )


def _said(candidate: Candidate) -> str:
    slower = candidate.factor >= 1
    factor = candidate.factor if slower else 1 / candidate.factor
    how = "slower" if slower else "faster"
    if candidate.term is Term.QUEUEING:
        return f"{candidate.term} (requests wait {'longer' if slower else 'less'} than planned)"
    least = "at least " if factor > MOST_FACTOR / 1.01 else ""
    return f"{candidate.term} ({least}{factor:.2g} times {how} than planned)"


_Change = Callable[[StepModel], StepModel]
_Wait = Callable[[Service, Observed], float]


def _as_it_is(_service: Service, _stage: Observed) -> float:
    return 0.0


def _best(
    deployed: Deployed, stages: Sequence[Observed], term: Term, planned: float
) -> tuple[float, Candidate]:
    """The factor of a term that fits best: its cost with the prior, and the candidate."""
    span, middle = log(MOST_FACTOR), 0.0
    best = (float("inf"), Candidate(term=term, factor=1.0, explained=0.0))
    for _ in range(ROUNDS):
        for i in range(-GRID, GRID + 1):
            x = middle + span * i / GRID
            if abs(x) > log(MOST_FACTOR):
                continue
            misfit = _of_factor(deployed, stages, term, exp(x))
            cost = misfit + (x / FACTOR_SPREAD) ** 2
            if cost < best[0]:
                explained = 1 - misfit / planned if planned else 0.0
                best = (cost, Candidate(term=term, factor=exp(x), explained=explained))
        middle, span = log(best[1].factor), span / GRID
    return best


def _of_factor(deployed: Deployed, stages: Sequence[Observed], term: Term, factor: float) -> float:
    if term is Term.QUEUEING:
        return _misfit(deployed, stages, lambda step: step, _waiting(factor))
    return _misfit(deployed, stages, _slower(term, factor), _as_it_is)


def _slower(term: Term, factor: float) -> _Change:
    def change(step: StepModel) -> StepModel:
        return StepModel(step.counted, slowed(step.rates, term, factor), step.replica)

    return change


def _waiting(factor: float) -> _Wait:
    """Waiting beside the steps: by the server's word, else a share of all but one user's time."""

    def wait_s(service: Service, stage: Observed) -> float:
        assert stage.concurrency is not None
        if stage.queue_s is not None:
            return stage.queue_s - service.queue_s if factor != 1 else 0.0
        return (factor - 1) * service.e2e_s * (1 - 1 / stage.concurrency)

    return wait_s


def slowed(rates: Rates, term: Term, factor: float) -> Rates:
    """The rates with one term so many times slower."""
    divided, multiplied = _SLOWER[term]
    changed = {name: getattr(rates, name) / factor for name in divided}
    changed |= {name: getattr(rates, name) * factor for name in multiplied}
    return replace(rates, **changed)


def _misfit(deployed: Deployed, stages: Sequence[Observed], change: _Change, wait: _Wait) -> float:
    """Squared misfits of all stages, each in its standard deviations."""
    case, total = deployed.case, 0.0
    step = change(case.step(deployed.parts.speed))
    for stage in stages:
        service = service_of(
            case,
            step,
            stage.load,
            most_running=max(1, deployed.most_running(stage.load)),
            num_rounds=stage.num_rounds,
        )
        waited = wait(service, stage)
        said = {
            ITL: service.decode_s / case.tokens_per_step,
            TPOT: service.tpot_s,
            E2E: max(service.e2e_s + waited, 1e-9),
            TTFT: max(service.ttft_s + waited, 1e-9),
        }
        for name in figures(deployed):
            if name in stage.measured:
                total += (log(stage.measured[name] / said[name]) / SPREADS[name]) ** 2
    return total
