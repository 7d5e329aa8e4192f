"""The best candidate for each goal, and the next best that is something else."""

from collections.abc import Callable
from typing import assert_never

from k31ctl.core.because import because
from k31ctl.core.goal import Goal
from k31ctl.core.search import Candidate, LoadResult
from k31ctl.values import frozen


@frozen
class Recommendation:
    """The best candidate for a goal, the best on another layout or hardware, and what decided.

    ``elsewhere`` is the best on other hardware; None where only one kind can be recommended.
    """

    goal: Goal
    chosen: Candidate
    runner_up: Candidate | None
    elsewhere: Candidate | None
    because: str


Key = Callable[[Candidate], tuple[float, ...]]


def recommendations(load: LoadResult) -> tuple[Recommendation, ...]:
    """One recommendation per goal among the candidates within the service levels.

    None for a goal that nothing is known about: cost without any price.
    """
    found = []
    for goal in Goal:
        chosen = recommended(load, goal)
        if chosen is None:
            continue
        key = _key(goal)
        others = (c for c in _able(load, goal) if c.option.place != chosen.option.place)
        runner_up = max(others, key=key, default=None)
        hardware = chosen.option.parts.node.id
        far = (c for c in _able(load, goal) if c.option.parts.node.id != hardware)
        found.append(
            Recommendation(
                goal=goal,
                chosen=chosen,
                runner_up=runner_up,
                elsewhere=max(far, key=key, default=None),
                because=because(goal, chosen, runner_up, candidates=load.candidates),
            )
        )
    return tuple(found)


def recommended(load: LoadResult, goal: Goal) -> Candidate | None:
    """The best candidate for a goal; None where there is none.

    Of equals the one on fewer GPUs is better, then the one that the walk meets first.
    """
    return max(_able(load, goal), key=_key(goal), default=None)


def _able(load: LoadResult, goal: Goal) -> tuple[Candidate, ...]:
    if goal is Goal.COST:
        return tuple(c for c in load.kept if c.usd_per_m_total_tokens is not None)
    return load.kept


def _key(goal: Goal) -> Key:
    """What makes one candidate better than another: the first value that differs, larger."""
    match goal:
        case Goal.THROUGHPUT:
            return lambda c: (c.output_tok_s_per_gpu, c.tok_s_per_user, -c.option.num_gpus)
        case Goal.LATENCY:
            return lambda c: (-c.tpot_s, -c.ttft_s, -c.option.num_gpus)
        case Goal.COST:
            return lambda c: (-(c.usd_per_m_total_tokens or 0), -c.ttft_s, -c.option.num_gpus)
        case Goal.CONTEXT:
            return lambda c: (
                c.option.longest_context,
                c.output_tok_s_per_gpu,
                -c.option.num_gpus,
            )
    assert_never(goal)
