"""The whole answer of a search: what was found, what is recommended, and the fleet for a load."""

from k31ctl.core.fleet import Fleet, FleetLoad, fleet
from k31ctl.core.goal import Goal
from k31ctl.core.goals import Recommendation, recommendations
from k31ctl.core.search import NO_SLO, LoadResult, SearchResult, search
from k31ctl.core.search_space import SearchSpace
from k31ctl.core.slo import Slo
from k31ctl.core.unreachable import check_reachable
from k31ctl.errors import RefusedError, UsageError
from k31ctl.values import frozen


@frozen
class LoadAnswer:
    """What is recommended for requests of one size.

    Empty with a reason in ``why_not`` where nothing holds them, or nothing keeps the service
    levels. ``fleet`` is of what the goal recommends.
    """

    load: LoadResult
    recommendations: tuple[Recommendation, ...]
    fleet: Fleet | None
    why_not: str

    def of(self, goal: Goal) -> Recommendation | None:
        """The recommendation for a goal; None where there is none."""
        return next((r for r in self.recommendations if r.goal is goal), None)


@frozen
class Searched:
    """The answer, with the goal that comes first."""

    goal: Goal
    result: SearchResult
    loads: tuple[LoadAnswer, ...]


def searched(
    space: SearchSpace,
    *,
    goal: Goal = Goal.THROUGHPUT,
    slo: Slo = NO_SLO,
    fleet_load: FleetLoad | None = None,
) -> Searched:
    """Search, recommend, and size a fleet where a load of users is given.

    Raises RefusedError where nothing fits or no load can keep the service levels, and UsageError
    where cost is the goal and nothing has a price.
    """
    if goal is Goal.COST and all(s.usd_per_gpu_hour is None for s in space.systems):
        raise UsageError(
            "no system of this search has a price",
            where="--goal cost",
            remedy="give --price, or systems that the price lists know",
        )
    result = search(space, slo=slo)
    refused: list[RefusedError] = []
    answers = []
    for load in result.loads:
        try:
            check_reachable(load, slo)
        except RefusedError as error:
            refused.append(error)
            answers.append(_empty(load, error.what))
            continue
        if not load.kept:
            answers.append(_empty(load, "no deployment holds requests of this length"))
            continue
        found = recommendations(load)
        chosen = next((r.chosen for r in found if r.goal is goal), None)
        answers.append(
            LoadAnswer(
                load=load,
                recommendations=found,
                fleet=fleet(chosen, fleet_load, slo=slo) if chosen and fleet_load else None,
                why_not="",
            )
        )
    if refused and not any(answer.recommendations for answer in answers):
        raise refused[0]
    return Searched(goal=goal, result=result, loads=tuple(answers))


def _empty(load: LoadResult, why_not: str) -> LoadAnswer:
    return LoadAnswer(load=load, recommendations=(), fleet=None, why_not=why_not)
