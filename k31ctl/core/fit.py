"""Parameters fitted to measurements, each held to what was believed of it before.

The fit is the most probable set of values when the logarithm of every prediction over its
measurement, and of every value over its prior, is normally distributed (Gauss-Newton with
damping). Without measurements it returns the priors.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, log, sqrt
from operator import mul

from k31ctl.core.figure import Basis
from k31ctl.core.measurement import Trial, predicted
from k31ctl.core.speed_parameters import Parameter, SpeedParameters, Table, tables
from k31ctl.core.symmetric import inverse_diagonal, solve

# Two runs of the same deployment by different people differ by about so much.
MEASUREMENT_SPREAD = 0.10
# The time to the first token depends more on how a benchmark starts its requests.
FIRST_TOKEN_SPREAD = 0.30
UNFITTED = ("model_spread",)
STEP = 1e-4
MOST_TRIES = 8
LEAST_GAIN = 1e-6
RUNS_OF_A_SWEEP = 4
MOST_ROUNDS = 30
# Below this share of its prior spread a parameter is known from measurements.
INFORMED = 0.7

Name = tuple[str, str]


def free_names(parameters: SpeedParameters) -> list[Name]:
    """Every parameter that may move: its prior leaves it room."""
    return [
        (table, key)
        for table, entries in tables(parameters).items()
        if table not in UNFITTED
        for key, entry in entries.items()
        if entry.prior_spread > 0
    ]


def fitted(parameters: SpeedParameters, trials: Sequence[Trial]) -> SpeedParameters:
    """The parameters most probable after these measurements, with what is left of their spread.

    Values start from their priors, so the result does not depend on an earlier fit.
    """
    names = free_names(parameters)
    entries = {name: tables(parameters)[name[0]][name[1]] for name in names}
    problem = _Problem(parameters, entries, names, trials, _weights(trials))
    x = [0.0] * len(names)  # logarithm of value over prior, in prior spreads
    residuals = problem.residuals(x)
    problem.look(x, residuals)
    damping, jacobian = 1e-3, problem.jacobian(x, residuals)
    for _ in range(MOST_ROUNDS):
        moved = False
        for _ in range(MOST_TRIES):
            step = solve(_normal(jacobian, damping), _gradient(jacobian, _flat(residuals), x))
            new_x = [a + b for a, b in zip(x, step, strict=True)]
            new = problem.residuals(new_x)
            gain = _cost(residuals, x) - _cost(new, new_x)
            if gain > 0:
                x, residuals, damping, moved = new_x, new, damping / 5, gain > LEAST_GAIN
                break
            damping *= 5
        if not moved and not problem.look(x, residuals):
            break
        jacobian = problem.jacobian(x, residuals)
    variances = inverse_diagonal(_normal(jacobian, 0.0)) if x else []
    return _at(parameters, entries, names, x, [sqrt(v) for v in variances])


class _Problem:
    """Residuals and their derivatives, with what each parameter can touch remembered."""

    def __init__(
        self,
        parameters: SpeedParameters,
        entries: Mapping[Name, Parameter],
        names: Sequence[Name],
        trials: Sequence[Trial],
        weights: Sequence[float],
    ) -> None:
        self._parameters, self._entries, self._names = parameters, entries, names
        self._trials, self._weights = trials, weights
        self._touched: list[set[int]] = [set() for _ in names]

    def _at(self, x: Sequence[float]) -> SpeedParameters:
        return _at(self._parameters, self._entries, self._names, x)

    def _moved(self, here: SpeedParameters, i: int, x: float) -> SpeedParameters:
        """The parameters here but for one, which is at x."""
        table, key = self._names[i]
        entry = self._entries[table, key]
        moved = replace(entry, value=entry.prior * exp(x * entry.prior_spread))
        entries: Table = {**getattr(here, table), key: moved}
        return replace(here, **{table: entries})  # type: ignore[arg-type]

    def residuals(self, x: Sequence[float]) -> list[list[float]]:
        """Residuals of every trial."""
        return _residuals(self._at(x), self._trials, self._weights)

    def look(self, x: Sequence[float], residuals: Sequence[Sequence[float]]) -> bool:
        """Look which trials each parameter moves here, and tell whether any is new.

        Of another engine or GPU it moves nothing at any value. But what hides behind a larger term
        at the priors may show where the fit has come to, so that it is looked at there again.
        """
        before, here = sum(map(len, self._touched)), self._at(x)
        for i, touched in enumerate(self._touched):
            columns = self._columns(here, x, i, range(len(self._trials)), residuals)
            touched |= {j for j, column in columns.items() if any(column)}
        return sum(map(len, self._touched)) > before

    def jacobian(
        self, x: Sequence[float], residuals: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        """Rows by parameter: how much each residual moves with it."""
        here = self._at(x)
        rows = []
        for i, touched in enumerate(self._touched):
            columns = self._columns(here, x, i, touched, residuals)
            idle = ([0.0] * len(values) for values in residuals)
            rows.append(_flat([columns.get(j, zeros) for j, zeros in enumerate(idle)]))
        return rows

    def _columns(
        self,
        here: SpeedParameters,
        x: Sequence[float],
        i: int,
        trials: Iterable[int],
        residuals: Sequence[Sequence[float]],
    ) -> dict[int, list[float]]:
        """How much the residuals of some trials move with one parameter."""
        moved = self._moved(here, i, x[i] + STEP)
        columns = {}
        for j in trials:
            new = _of_trial(moved, self._trials[j], self._weights[j])
            columns[j] = [(a - b) / STEP for a, b in zip(new, residuals[j], strict=True)]
        return columns


def _flat(values: Sequence[Sequence[float]]) -> list[float]:
    return [value for each in values for value in each]


def _at(
    parameters: SpeedParameters,
    entries: Mapping[Name, Parameter],
    names: Sequence[Name],
    x: Sequence[float],
    spreads: Sequence[float] | None = None,
) -> SpeedParameters:
    """The parameters with each value moved from its prior by so many prior spreads."""
    changed: dict[str, Table] = {}
    for i, name in enumerate(names):
        entry = entries[name]
        table = changed.setdefault(name[0], dict(tables(parameters)[name[0]]))
        value = entry.prior * exp(x[i] * entry.prior_spread)
        spread, basis = entry.prior_spread, entry.basis
        if spreads is not None:
            spread = entry.prior_spread * spreads[i]
            basis = Basis.MEASURED if spreads[i] < INFORMED else Basis.ASSUMED
        table[name[1]] = replace(entry, value=value, spread=spread, basis=basis)
    return replace(parameters, **changed)  # type: ignore[arg-type]


def _residuals(
    parameters: SpeedParameters, trials: Sequence[Trial], weights: Sequence[float]
) -> list[list[float]]:
    """How far each quantity of each trial is off, in standard deviations."""
    return [
        _of_trial(parameters, trial, weight) for trial, weight in zip(trials, weights, strict=True)
    ]


def _of_trial(parameters: SpeedParameters, trial: Trial, weight: float) -> list[float]:
    measured = trial.measurement.measured
    return [
        weight * log(said / measured[name]) / _measurement_spread(name)
        for name, said in sorted(predicted(trial, parameters).items())
    ]


def _weights(trials: Sequence[Trial]) -> list[float]:
    """Several quantities of one run are not independent: together they count as one.

    Nor are the runs of one sweep: a long one counts as a few.
    """
    sizes = Counter(_sweep(trial) for trial in trials)
    return [
        1
        / sqrt(
            max(1, len(trial.measurement.measured))
            * max(1.0, sizes[_sweep(trial)] / RUNS_OF_A_SWEEP)
        )
        for trial in trials
    ]


def _measurement_spread(quantity: str) -> float:
    return FIRST_TOKEN_SPREAD if quantity == "ttft_ms" else MEASUREMENT_SPREAD


def _sweep(trial: Trial) -> tuple[str, ...]:
    run = trial.measurement
    return (run.source, run.hardware, run.engine, run.layout, str(trial.case.kernel))


def _cost(residuals: Sequence[Sequence[float]], x: Sequence[float]) -> float:
    return sum(r * r for each in residuals for r in each) + sum(v * v for v in x)


def _gradient(
    jacobian: Sequence[Sequence[float]], residuals: Sequence[float], x: Sequence[float]
) -> list[float]:
    """Downhill direction of half the cost."""
    return [
        -sum(a * b for a, b in zip(row, residuals, strict=True)) - value
        for row, value in zip(jacobian, x, strict=True)
    ]


def _normal(jacobian: Sequence[Sequence[float]], damping: float) -> list[list[float]]:
    """Curvature of half the cost, the priors' part included."""
    size = len(jacobian)
    matrix = [[0.0] * size for _ in range(size)]
    for i, row in enumerate(jacobian):
        for j in range(i + 1):
            matrix[i][j] = matrix[j][i] = sum(map(mul, row, jacobian[j]))
        matrix[i][i] += 1.0 + damping * (1.0 + matrix[i][i])
    return matrix
