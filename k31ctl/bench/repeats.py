"""What repeated runs of one load agree on: the mean of each metric and its 95 % interval."""

from collections.abc import Mapping, Sequence
from math import fsum, sqrt
from typing import Any, Final

from k31ctl.bench.result import Spread, StageResult
from k31ctl.values import frozen

# Two-sided 95 % quantiles of Student's t by degrees of freedom; beyond them the normal one.
_T95: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL95: Final = 1.960
_RATES: Final = ("request_rate", "output_tok_s", "total_tok_s", "goodput")
_SPREADS: Final = ("ttft_s", "itl_s", "itl_token_s", "tpot_s", "e2e_s")
_PARTS: Final = ("mean", "p50", "p90", "p95", "p99")


@frozen
class Interval:
    """Mean over runs and the 95 % confidence interval of that mean."""

    mean: float
    low: float
    high: float


@frozen
class Repeated:
    """The runs of one load and what they agree on, by dotted name as in a result."""

    name: str
    num_runs: int
    metrics: Mapping[str, Interval]


def repeated(results: Sequence[StageResult]) -> tuple[Repeated, ...]:
    """Return every load that ran more than once."""
    by_name: dict[str, list[StageResult]] = {}
    for result in results:
        if result.is_whole:
            by_name.setdefault(result.name, []).append(result)
    return tuple(
        Repeated(name=name, num_runs=len(runs), metrics=_metrics(runs))
        for name, runs in by_name.items()
        if len(runs) > 1
    )


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of at least two values with its interval, by Student's t."""
    n = len(values)
    mean = fsum(values) / n
    deviation = sqrt(fsum((value - mean) ** 2 for value in values) / (n - 1))
    t = _T95[n - 2] if n - 2 < len(_T95) else _NORMAL95
    half = t * deviation / sqrt(n)
    return Interval(mean=mean, low=mean - half, high=mean + half)


def _metrics(runs: Sequence[StageResult]) -> dict[str, Interval]:
    found = {}
    for name in metric_names():
        values = [value for run in runs if (value := metric(run, name)) is not None]
        if len(values) == len(runs):
            found[name] = interval(values)
    return found


def metric_names() -> tuple[str, ...]:
    """Dotted names of the numbers that one run can be compared with another by."""
    return (*_RATES, *(f"{spread}.{part}" for spread in _SPREADS for part in _PARTS))


def metric(result: StageResult, name: str) -> float | None:
    """Return a number of a result by its dotted name, None where it has none."""
    head, _, part = name.partition(".")
    value: Any = getattr(result, head)
    if isinstance(value, Spread):
        value = getattr(value, part)
    return value if isinstance(value, int | float) else None
