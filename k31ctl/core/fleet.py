"""How many replicas a number of users needs, and what happens when one of them fails."""

import re
from dataclasses import replace
from math import ceil, isfinite
from typing import Final

from k31ctl.core.latencies import excess
from k31ctl.core.prediction import service_of
from k31ctl.core.search import Candidate
from k31ctl.core.service import Service
from k31ctl.core.slo import Slo
from k31ctl.core.step_times import StepTimes
from k31ctl.errors import UsageError
from k31ctl.units import S_PER_HOUR
from k31ctl.values import frozen

EXAMPLE: Final = "users=20000,active=0.1,requests_per_hour=6,headroom=0.3,spare=1"
MOST_USERS: Final = 1e10
MOST_REPLICAS: Final = 1_000_000
_ENTRY = re.compile(r"\s*([a-z_]+)\s*=\s*(\S+)\s*")
_MAX_SHOWN: Final = 40


@frozen
class FleetLoad:
    """Users, the fraction of them that is active at once, and the requests each of those sends.

    ``headroom_fraction`` is planned on top of the load; ``spare`` replicas may fail with the
    headroom still there.
    """

    users: float
    active_fraction: float
    requests_per_hour: float
    headroom_fraction: float
    spare: int

    @property
    def requests_per_s(self) -> float:
        """Requests that arrive in a second."""
        return self.users * self.active_fraction * self.requests_per_hour / S_PER_HOUR


@frozen
class Running:
    """One replica of so many that share the load evenly.

    ``concurrency`` is how many requests it has at once; ``utilisation`` its load over the most that
    it serves within the service levels. ``service`` is None where it cannot keep up.
    """

    replicas: int
    utilisation: float
    concurrency: int
    service: Service | None
    kept: bool


@frozen
class Fleet:
    """Replicas of one deployment for a load.

    ``needed_concurrency`` is how many requests are in the system at once when each replica is as
    full as the service levels let it be. Cost per hour is None without a price.
    """

    load: FleetLoad
    of: Candidate
    requests_per_s: float
    needed_concurrency: float
    replicas: int
    num_gpus: int
    usd_per_hour: float | None
    usual: Running
    one_failed: Running


def fleet(of: Candidate, load: FleetLoad, *, slo: Slo) -> Fleet:
    """Size a fleet of one candidate's deployment, each replica no fuller than the candidate.

    Symbols: λ requests per second, W seconds of a request end to end, c requests at once in a full
    replica, h headroom, s spare replicas.
    Formula: Little's law, L = λ W at once in all; replicas = ceil(L (1 + h) / c) + s.
    """
    rate = load.requests_per_s
    at_once = rate * of.concurrency / of.requests_per_s
    replicas = ceil(at_once * (1 + load.headroom_fraction) / of.concurrency - 1e-9)
    replicas = max(1, replicas) + load.spare
    if replicas > MOST_REPLICAS:
        raise UsageError(
            f"{replicas:,} replicas are more than {MOST_REPLICAS:,}",
            where="--fleet",
            remedy="give fewer users, or a smaller share of active ones",
        )
    hourly = of.option.usd_per_hour
    return Fleet(
        load=load,
        of=of,
        requests_per_s=rate,
        needed_concurrency=at_once,
        replicas=replicas,
        num_gpus=replicas * of.option.num_gpus,
        usd_per_hour=None if hourly is None else replicas * hourly,
        usual=_running(of, rate, replicas, slo),
        one_failed=_running(of, rate, replicas - 1, slo),
    )


def _running(of: Candidate, rate: float, replicas: int, slo: Slo) -> Running:
    """A replica's share of the load: the fewest requests at once that serve it.

    Beyond what the candidate runs, a replica may take more as long as its cache holds them.
    """
    if not replicas:
        return Running(replicas=0, utilisation=0.0, concurrency=0, service=None, kept=False)
    share = rate / replicas
    option, groups = of.option, of.option.layout.dp
    times = StepTimes(option.step)
    length = of.workload.prompt_tokens + of.workload.output_tokens
    most = option.pool.max_requests(length)

    def at(concurrency: int) -> Service:
        load = replace(of.workload, concurrency=concurrency)
        return service_of(option.case, times, load, most_running=most)

    low, high = 1, max(1, most * groups)
    service: Service | None = None
    if at(high).requests_per_s * groups < share:
        low = high
    else:
        while low < high:
            middle = (low + high) // 2
            if at(middle).requests_per_s * min(groups, middle) >= share:
                high = middle
            else:
                low = middle + 1
        service = at(low)
    return Running(
        replicas=replicas,
        utilisation=share / of.requests_per_s,
        concurrency=low,
        service=service,
        kept=service is not None
        and excess(service, slo, output_tokens=of.workload.output_tokens) <= 1,
    )


def parse_fleet(text: str, *, where: str = "--fleet") -> FleetLoad:
    """Read ``users=20000,active=0.1,requests_per_hour=6``; raises UsageError naming the bad key."""
    given: dict[str, float] = {}
    for part in text.split(","):
        found = _ENTRY.fullmatch(part)
        if found is None:
            raise _bad(f"{_shown(part)} is not key=number", where)
        key, number = found.groups()
        if key not in _RANGES:
            raise _bad(f"{_shown(key)} is not a key; keys are {', '.join(_RANGES)}", where)
        if key in given:
            raise _bad(f"{key} is given twice", where)
        given[key] = _number(key, number, where)
    missing = [key for key in ("users", "requests_per_hour") if key not in given]
    if missing:
        raise _bad(f"{missing[0]} is missing", where)
    return FleetLoad(
        users=given["users"],
        active_fraction=given.get("active", 1.0),
        requests_per_hour=given["requests_per_hour"],
        headroom_fraction=given.get("headroom", 0.3),
        spare=int(given.get("spare", 1)),
    )


# Least and most, and whether the least itself is allowed.
_RANGES: Final[dict[str, tuple[float, float, bool]]] = {
    "users": (0, MOST_USERS, False),
    "active": (0, 1, False),
    "requests_per_hour": (0, MOST_USERS, False),
    "headroom": (0, 100, True),
    "spare": (0, 1000, True),
}


def _number(key: str, text: str, where: str) -> float:
    low, high, closed = _RANGES[key]
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        raise _bad(f"{key}={_shown(text)} is not a number", where) from None
    inside = low <= value <= high if closed else low < value <= high
    if not (isfinite(value) and inside):
        bound = f"between {low:g} and {high:g}" if closed else f"above {low:g}, at most {high:g}"
        raise _bad(f"{key}={text[:_MAX_SHOWN]} is not {bound}", where)
    if key == "spare" and value != int(value):
        raise _bad(f"spare={text[:_MAX_SHOWN]} is not a whole number", where)
    return value


def _bad(what: str, where: str) -> UsageError:
    return UsageError(what, where=where, remedy=f"write {EXAMPLE!r}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...")
