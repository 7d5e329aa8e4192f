"""What repeated runs of one load agree on: the mean of each metric and its 95 % interval."""

from collections.abc import Mapping, Sequence
from math import fsum, sqrt
from typing import Any, Final

from k31ctl.bench.result import Spread, StageResult
from k31ctl.core.student import student_quantile
from k31ctl.values import frozen

# What lies above the upper end of an interval that holds 95 %.
_TAIL: Final = 0.025
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
    half = student_quantile(_TAIL, degrees=n - 1) * deviation / sqrt(n)
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
