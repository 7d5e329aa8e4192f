"""Every legal deployment under every load, the fronts of them, and one recommendation per goal."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from k31ctl.core.calibration_scope import check_scope
from k31ctl.core.latencies import excess
from k31ctl.core.pareto import front
from k31ctl.core.prediction import service_of
from k31ctl.core.search_space import Dropped, Option, SearchSpace, options
from k31ctl.core.service import Service
from k31ctl.core.slo import Slo
from k31ctl.core.step_times import StepTimes
from k31ctl.core.workload import Workload
from k31ctl.errors import RefusedError, UsageError
from k31ctl.units import S_PER_HOUR, TOKENS_PER_M
from k31ctl.values import frozen

NO_SLO = Slo(limits=())


class Candidate(NamedTuple):
    """One deployment under one load that it holds. A named tuple, as there are very many.

    ``output_tok_s`` and ``requests_per_s`` are of one replica; ``excess`` is how far the worst
    service level is missed, 1 or less where all are kept.
    """

    option: Option
    workload: Workload
    service: Service
    requests_per_s: float
    output_tok_s: float
    output_tok_s_per_gpu: float
    total_tok_s_per_gpu: float
    tok_s_per_user: float
    ttft_s: float
    tpot_s: float
    usd_per_m_total_tokens: float | None
    excess: float

    @property
    def concurrency(self) -> int:
        """Requests in one replica."""
        assert self.workload.concurrency is not None
        return self.workload.concurrency


@frozen
class LoadResult:
    """What was found for requests of one size.

    ``kept`` are the candidates within the service levels, in the order of the walk. The fronts are
    tokens per second and GPU against tokens per second and user, and cost against time to first
    token.
    """

    workload: Workload
    candidates: tuple[Candidate, ...]
    kept: tuple[Candidate, ...]
    speed_front: tuple[Candidate, ...]
    cost_front: tuple[Candidate, ...]


@frozen
class SearchResult:
    """A whole search.

    ``refused`` counts deployments by the rule that refused them, ``too_large`` those whose weights
    do not load. ``idle`` counts loads with fewer requests than attention groups, which would stand
    idle, ``full`` loads that a cache does not hold, and ``num_evaluated`` those that were computed.
    """

    space: SearchSpace
    slo: Slo
    loads: tuple[LoadResult, ...]
    num_options: int
    num_evaluated: int
    refused: dict[str, int]
    too_large: int
    idle: int
    full: int


def search(space: SearchSpace, *, slo: Slo = NO_SLO) -> SearchResult:
    """Walk the space.

    Raises UsageError for a load that the model or the search cannot take, RefusedError where
    nothing fits. That no candidate keeps the service levels is said by ``kept``.
    """
    _check(space)
    dropped = Dropped(by_rule=Counter())
    ladders = [_ladder(space, workload) for workload in space.workloads]
    found: list[list[Candidate]] = [[] for _ in ladders]
    num_options = 0
    for option in options(space, dropped):
        num_options += 1
        times = StepTimes(option.step)
        for ladder, candidates in zip(ladders, found, strict=True):
            _evaluate(option, times, ladder, slo, candidates, dropped)
    if not any(found):
        raise _nothing(space, dropped)
    return SearchResult(
        space=space,
        slo=slo,
        loads=tuple(
            _load_result(workload, candidates)
            for workload, candidates in zip(space.workloads, found, strict=True)
        ),
        num_options=num_options,
        num_evaluated=sum(map(len, found)),
        refused=dict(sorted(dropped.by_rule.items())),
        too_large=dropped.too_large,
        idle=dropped.idle,
        full=dropped.full,
    )


def _check(space: SearchSpace) -> None:
    for system, engine in product(space.systems, space.engines):
        check_scope(space.speed.calibration, node=system.node, engine=engine)
    limit = space.model.max_position_embeddings
    for workload in space.workloads:
        length = workload.prompt_tokens + workload.output_tokens
        if length > limit:
            raise UsageError(
                f"{length:,} tokens in and out are beyond the {limit:,} of {space.model.name}",
                where="--search",
                remedy=f"shorten --context, or --prompt-tokens and --output-tokens, to {limit}",
            )
    if space.base.offload is not None:
        raise UsageError(
            "with experts off the GPUs the link decides, and no speed is modelled",
            where="--search, --offload",
            remedy="leave --offload out of a search",
        )


def _ladder(space: SearchSpace, workload: Workload) -> tuple[Workload, ...]:
    return tuple(
        replace(workload, concurrency=concurrency, rate_per_s=None)
        for concurrency in sorted(set(space.concurrencies))
    )


def _evaluate(
    option: Option,
    times: StepTimes,
    ladder: Sequence[Workload],
    slo: Slo,
    candidates: list[Candidate],
    dropped: Dropped,
) -> None:
    """Add a candidate for each load that occupies every group and that the cache holds."""
    groups = option.layout.dp
    output = ladder[0].output_tokens
    length = ladder[0].prompt_tokens + output
    most = option.pool.max_requests(length)
    for place, workload in enumerate(ladder):
        assert workload.concurrency is not None
        if workload.concurrency < groups:
            dropped.idle += 1
            continue
        if -(-workload.concurrency // groups) > most:
            dropped.full += len(ladder) - place
            break
        service = service_of(option.case, times, workload, most_running=most)
        candidates.append(_candidate(option, workload, service, slo, length))


def _candidate(
    option: Option, workload: Workload, service: Service, slo: Slo, length: int
) -> Candidate:
    gpus, hourly = option.layout.world, option.usd_per_hour
    rate = option.layout.dp * service.requests_per_s
    output = rate * workload.output_tokens
    return Candidate(
        option,
        workload,
        service,
        rate,
        output,
        output / gpus,
        rate * length / gpus,
        1 / service.tpot_s,
        service.ttft_s,
        service.tpot_s,
        None if hourly is None else _usd_per_m(hourly, rate * length, option.utilisation),
        excess(service, slo, output_tokens=workload.output_tokens) if slo.limits else 0.0,
    )


def _usd_per_m(usd_per_hour: float, tok_s: float, utilisation: float) -> float:
    """US dollars of a million tokens, in and out, at the share of time under full load."""
    return usd_per_hour * TOKENS_PER_M / (utilisation * tok_s * S_PER_HOUR)


def usd_per_m_output_tokens(candidate: Candidate) -> float | None:
    """US dollars of a million output tokens, as ``core.cost`` has it: decoding's share of the time.

    Formula: (1 - f) times the hourly cost over an hour's output tokens, with f prefill's share.
    """
    option, service, workload = candidate.option, candidate.service, candidate.workload
    if option.usd_per_hour is None:
        return None
    decoding = service.decode_s * (workload.output_tokens - 1) / option.case.tokens_per_step
    share = decoding / (service.prefill_s + decoding) if decoding else 0.0
    alone = _usd_per_m(option.usd_per_hour, candidate.output_tok_s, option.utilisation)
    return share * alone


def _load_result(workload: Workload, candidates: list[Candidate]) -> LoadResult:
    kept = [c for c in candidates if c.excess <= 1]
    priced = [c for c in kept if c.usd_per_m_total_tokens is not None]
    return LoadResult(
        workload=workload,
        candidates=tuple(candidates),
        kept=tuple(kept),
        speed_front=front(kept, lambda c: (c.output_tok_s_per_gpu, c.tok_s_per_user)),
        cost_front=front(priced, lambda c: (-(c.usd_per_m_total_tokens or 0.0), -c.ttft_s)),
    )


def _nothing(space: SearchSpace, dropped: Dropped) -> RefusedError:
    most, count = max(
        [("they refuse all layouts", sum(dropped.by_rule.values())),
         ("the weights do not load", dropped.too_large),
         ("the cache does not hold the requests", dropped.full),
         ("attention groups would stand idle", dropped.idle)],
        key=lambda pair: pair[1],
    )  # fmt: skip
    systems = ", ".join(
        f"{max(s.node_counts)} x {s.node.id}" if max(s.node_counts) > 1 else s.node.id
        for s in space.systems
    )
    rules = ", ".join(f"{rule} {n}" for rule, n in dropped.by_rule.most_common(3))
    return RefusedError(
        f"no deployment of {space.model.name} fits: {most} in {count} cases",
        where=f"{systems} under {', '.join(e.name for e in space.engines)}"
        + (f"; refused by {rules}" if rules else ""),
        remedy="allow more nodes with --max-nodes, other --systems, or a shorter --context",
        rule="search-nothing-fits",
    )
