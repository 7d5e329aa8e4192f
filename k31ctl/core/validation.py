"""The speed model held against published measurements, seen and unseen."""

from collections.abc import Sequence

from k31ctl.core.estimate import Estimate
from k31ctl.core.fit import fitted
from k31ctl.core.measurement import Measurement, Trial, estimated
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.values import frozen

MOST_MEAN, MOST_WORST = 0.12, 0.30
MOST_CROSS_MEAN, MOST_CROSS_WORST = 0.18, 0.45
LEAST_COVERAGE = 0.90
UNSCORED = ("ttft_ms",)


@frozen
class Comparison:
    """One measured quantity and what the model said of it.

    ``cross`` is what a model says that was fitted without the measurement's source; None where
    that was not asked. ``scored`` is false for what the targets do not count.
    """

    measurement: Measurement
    quantity: str
    measured: float
    predicted: Estimate
    cross: Estimate | None
    scored: bool

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted.value / self.measured - 1

    @property
    def cross_error(self) -> float | None:
        """The same for the model that has not seen the source."""
        return None if self.cross is None else self.cross.value / self.measured - 1

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measurement."""
        return self.predicted.low <= self.measured <= self.predicted.high


@frozen
class Score:
    """Mean and worst absolute error, and the share of measurements inside their interval."""

    count: int
    mean_error: float
    worst_error: float
    coverage: float


@frozen
class Order:
    """Two layouts of the same GPUs under the same load, the better one first as measured."""

    better: str
    other: str
    measured_ratio: float
    predicted_ratio: float

    @property
    def right(self) -> bool:
        """Whether the model puts the two in the measured order."""
        return self.predicted_ratio > 1


@frozen
class Validation:
    """Every comparison, the scores, and the targets that are missed."""

    comparisons: tuple[Comparison, ...]
    seen: Score
    cross: Score | None
    orders: tuple[Order, ...]
    missed: tuple[str, ...]


def validation(
    trials: Sequence[Trial], others: Sequence[Trial], parameters: SpeedParameters, *, cross: bool
) -> Validation:
    """Hold the parameters against the trials.

    With ``cross``, each source in turn is predicted by parameters fitted to all trials and all
    others but its own.
    """
    unseen: dict[str, SpeedParameters] = {}
    if cross:
        every = [trial for trial in (*trials, *others) if not trial.measurement.left_out]
        for source in sorted({trial.measurement.source for trial in trials}):
            rest = [trial for trial in every if trial.measurement.source != source]
            unseen[source] = fitted(parameters, rest)
    comparisons = tuple(
        comparison for trial in trials for comparison in _compared(trial, parameters, unseen)
    )
    scored = [c for c in comparisons if c.scored]
    seen = _score([(c.error, c.covered) for c in scored])
    crossed = None
    if cross:
        crossed = _score(
            [
                (c.cross_error, c.cross.low <= c.measured <= c.cross.high)
                for c in scored
                if c.cross is not None and c.cross_error is not None
            ]
        )
    orders = _orders(scored)
    return Validation(
        comparisons=comparisons,
        seen=seen,
        cross=crossed,
        orders=orders,
        missed=_missed(seen, crossed, orders),
    )


def _compared(
    trial: Trial, parameters: SpeedParameters, unseen: dict[str, SpeedParameters]
) -> list[Comparison]:
    said = estimated(trial, parameters)
    other = unseen.get(trial.measurement.source)
    crossed = estimated(trial, other) if other else {}
    return [
        Comparison(
            measurement=trial.measurement,
            quantity=name,
            measured=measured,
            predicted=said[name],
            cross=crossed.get(name),
            scored=not trial.measurement.left_out and name not in UNSCORED,
        )
        for name, measured in trial.measurement.measured.items()
    ]


def _score(found: Sequence[tuple[float, bool]]) -> Score:
    errors = [abs(error) for error, _ in found]
    if not errors:
        return Score(count=0, mean_error=0.0, worst_error=0.0, coverage=1.0)
    return Score(
        count=len(errors),
        mean_error=sum(errors) / len(errors),
        worst_error=max(errors),
        coverage=sum(covered for _, covered in found) / len(found),
    )


def _orders(comparisons: Sequence[Comparison]) -> tuple[Order, ...]:
    """Pairs of layouts measured by one source on the same GPUs at the same load."""
    found = []
    for i, one in enumerate(comparisons):
        for two in comparisons[i + 1 :]:
            if not _rivals(one, two):
                continue
            better, other = (one, two) if one.measured >= two.measured else (two, one)
            found.append(
                Order(
                    better=better.measurement.id,
                    other=other.measurement.id,
                    measured_ratio=better.measured / other.measured,
                    predicted_ratio=better.predicted.value / other.predicted.value,
                )
            )
    return tuple(found)


def _rivals(one: Comparison, two: Comparison) -> bool:
    a, b = one.measurement, two.measurement
    return (
        one.quantity == two.quantity == "out_tok_s"
        and a.source == b.source
        and a.hardware == b.hardware
        and a.num_nodes == b.num_nodes
        and a.layout != b.layout
        and a.workload.concurrency == b.workload.concurrency
        and a.workload.prompt_tokens == b.workload.prompt_tokens
    )


def _missed(seen: Score, cross: Score | None, orders: Sequence[Order]) -> tuple[str, ...]:
    checks = [
        (seen.mean_error, MOST_MEAN, "mean error"),
        (seen.worst_error, MOST_WORST, "worst error"),
        (1 - seen.coverage, 1 - LEAST_COVERAGE, "share outside the interval"),
    ]
    if cross is not None:
        checks += [
            (cross.mean_error, MOST_CROSS_MEAN, "mean error without the source"),
            (cross.worst_error, MOST_CROSS_WORST, "worst error without the source"),
        ]
    found = [
        f"{name} {value:.1%} is above {most:.0%}" for value, most, name in checks if value > most
    ]
    found += [f"{o.better} is predicted behind {o.other}" for o in orders if not o.right]
    return tuple(found)
