"""Service levels that nothing keeps: which one kills them, and the nearest that something keeps."""

from math import ceil, floor, inf, log10

from k31ctl.core.latencies import latency_s
from k31ctl.core.search import Candidate, LoadResult
from k31ctl.core.slo import Limit, Slo
from k31ctl.errors import RefusedError

UNREACHABLE = "slo-unreachable"


def check_reachable(load: LoadResult, slo: Slo) -> None:
    """Raise RefusedError where candidates exist and none keeps the service levels."""
    if load.kept or not load.candidates:
        return
    nearest = min(load.candidates, key=lambda c: c.excess)
    workload = load.workload
    raise RefusedError(
        _killer(load, slo),
        where=f"--slo, {workload.prompt_tokens:,} tokens in and {workload.output_tokens:,} out, "
        f"{len(load.candidates):,} candidates",
        remedy=f"the nearest that works is --slo '{_relaxed(nearest, slo)}' "
        f"({_name(nearest)}); or allow other hardware",
        rule=UNREACHABLE,
    )


def _killer(load: LoadResult, slo: Slo) -> str:
    """The limit that no candidate keeps alone, or the one that gives way when others are kept."""
    for limit in slo.limits:
        best = min(load.candidates, key=lambda c, limit=limit: _actual(c, limit))  # type: ignore[misc]
        if _actual(best, limit) > limit.at_most_s:
            return (
                f"{limit.name} <= {limit.at_most_s:g} cannot be met: the least is "
                f"{_actual(best, limit):.3g} s, with {_name(best)}"
            )
    found = []
    for limit in slo.limits:
        others = [each for each in slo.limits if each is not limit]
        able = [
            c for c in load.candidates if all(_actual(c, each) <= each.at_most_s for each in others)
        ]
        least = min((_actual(c, limit) for c in able), default=inf)
        if least < inf:
            found.append((least / limit.at_most_s, limit, least))
    if not found:
        return "each limit can be met, but no two of them together"
    _, limit, least = min(found, key=lambda each: each[0])
    return (
        f"{limit.name} <= {limit.at_most_s:g} cannot be met with the other limits kept: "
        f"the least is then {least:.3g} s"
    )


def _actual(candidate: Candidate, limit: Limit) -> float:
    found = latency_s(candidate.service, limit, output_tokens=candidate.workload.output_tokens)
    return 0.0 if found is None else found


def _relaxed(nearest: Candidate, slo: Slo) -> str:
    """The limits, each raised as far as the nearest candidate needs, in two digits."""
    return ",".join(
        f"{limit.name}<={max(limit.at_most_s, rounded_up(_actual(nearest, limit))):g}"
        for limit in slo.limits
    )


def rounded_up(value: float) -> float:
    """The next number of two digits that is not below the value."""
    if value <= 0:
        return 0.0
    digits = 1 - floor(log10(value))
    rounded = ceil(value * 10.0**digits) / 10.0**digits
    return float(f"{rounded:.12g}")


def _name(candidate: Candidate) -> str:
    return f"{candidate.option.text} at {candidate.concurrency} at once"
