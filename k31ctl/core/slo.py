"""Service levels: limits on latencies, whether a run keeps them, and how many requests do."""

import re
from collections.abc import Sequence
from math import isfinite

from k31ctl.core.served import METRICS, STATISTICS, RequestRecord, Summary, metric_s
from k31ctl.errors import UsageError
from k31ctl.values import frozen

NAMES = tuple(f"{metric}_{statistic}_s" for metric in METRICS for statistic in STATISTICS)
_LIMIT = re.compile(r"\s*([a-z]\w*)\s*(?:<=|<)\s*(\S+)\s*")
_MAX_SHOWN = 80


@frozen
class Limit:
    """A latency's statistic and the most that it may be, in seconds."""

    metric: str
    statistic: str
    at_most_s: float

    @property
    def name(self) -> str:
        """One of ``NAMES``."""
        return f"{self.metric}_{self.statistic}_s"


@frozen
class Slo:
    """Limits that all have to hold."""

    limits: tuple[Limit, ...]


@frozen
class Kept:
    """A limit and what was found; ``actual_s`` is None where no request has the latency."""

    limit: Limit
    actual_s: float | None

    @property
    def kept(self) -> bool:
        """Whether the limit holds; it does where nothing can break it."""
        return self.actual_s is None or self.actual_s <= self.limit.at_most_s


@frozen
class Goodput:
    """A run held against service levels.

    ``met`` says whether the statistics of the run keep every limit. ``good_fraction``,
    ``good_requests_per_s`` and ``good_output_tok_s`` count the requests that each keep the limits
    on their own latencies; where a metric has several limits, it is the loosest of them.
    """

    met: bool
    limits: tuple[Kept, ...]
    good_fraction: float
    good_requests_per_s: float
    good_output_tok_s: float


def parse_slo(text: str, *, where: str = "--slo") -> Slo:
    """Read ``ttft_p99_s<=5,tpot_p99_s<=0.05``; raises UsageError where it is not one."""
    limits = tuple(_limit(part, where) for part in text.split(","))
    names = [limit.name for limit in limits]
    for name in names:
        if names.count(name) > 1:
            raise _bad(f"{name} has more than one limit", where)
    return Slo(limits=limits)


def goodput(slo: Slo, records: Sequence[RequestRecord], summary: Summary) -> Goodput:
    """Hold a run against service levels."""
    loosest: dict[str, float] = {}
    for limit in slo.limits:
        loosest[limit.metric] = max(loosest.get(limit.metric, 0.0), limit.at_most_s)
    good = [record for record in records if _keeps(record, loosest)]
    kept = tuple(Kept(limit=limit, actual_s=_actual_s(summary, limit)) for limit in slo.limits)
    return Goodput(
        met=all(found.kept for found in kept),
        limits=kept,
        good_fraction=len(good) / len(records),
        good_requests_per_s=len(good) / summary.duration_s,
        good_output_tok_s=sum(record.output_tokens for record in good) / summary.duration_s,
    )


def _keeps(record: RequestRecord, limits_s: dict[str, float]) -> bool:
    for metric, at_most_s in limits_s.items():
        value = metric_s(record, metric)
        if value is not None and value > at_most_s:
            return False
    return True


def _actual_s(summary: Summary, limit: Limit) -> float | None:
    found = summary.of(limit.metric)
    if found is None:
        return None
    value: float = getattr(found, f"{limit.statistic}_s")
    return value


def _limit(text: str, where: str) -> Limit:
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise _bad(f"{_shown(text)} is not a limit on a latency", where)
    name, number = found.groups()
    if name not in NAMES:
        raise _bad(f"{_shown(name)} is not a latency that can be limited", where)
    metric, statistic, _ = name.split("_")
    return Limit(metric=metric, statistic=statistic, at_most_s=_seconds(number, name, where))


def _seconds(text: str, name: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _bad(f"{_shown(text)} is not a number of seconds for {name}", where) from None
    if not (isfinite(value) and value > 0):
        raise _bad(f"{name} cannot be limited to {_shown(text)}", where)
    return value


def _bad(what: str, where: str) -> UsageError:
    return UsageError(
        what,
        where=where,
        remedy="write 'ttft_p99_s<=5,tpot_p99_s<=0.05', in seconds; names are "
        f"{'|'.join(METRICS)}_{'|'.join(STATISTICS)}_s, one of each",
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...")
