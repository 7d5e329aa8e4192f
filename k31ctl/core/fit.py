"""Parameters fitted to measurements, each held to what was believed of it before.

The fit is the most probable set of values when the logarithm of every prediction over its
measurement, and of every value over its prior, is normally distributed (Gauss-Newton with
damping). Without measurements it returns the priors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log, sqrt

from k31ctl.core.figure import Basis
from k31ctl.core.measurement import Trial, predicted
from k31ctl.core.speed_parameters import Parameter, SpeedParameters, Table, tables

# Two runs of the same deployment by different people differ by about so much.
MEASUREMENT_SPREAD = 0.10
UNFITTED = ("model_spread",)
STEP = 1e-4
MOST_TRIES = 8
LEAST_GAIN = 1e-6
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


def fitted(
    parameters: SpeedParameters, trials: Sequence[Trial], *, scored: frozenset[str]
) -> SpeedParameters:
    """The parameters most probable after these measurements, with what is left of their spread.

    ``scored`` names the quantities that count. Values start from their priors, so the result does
    not depend on an earlier fit.
    """
    names = free_names(parameters)
    entries = {name: tables(parameters)[name[0]][name[1]] for name in names}
    x = [0.0] * len(names)  # logarithm of value over prior, in prior spreads
    residuals = _residuals(_at(parameters, entries, names, x), trials, scored)
    damping = 1e-3
    jacobian: list[list[float]] = []
    for _ in range(MOST_ROUNDS):
        jacobian = _jacobian(parameters, entries, names, x, trials, scored, residuals)
        moved = False
        for _ in range(MOST_TRIES):
            step = _solve(_normal(jacobian, damping), _gradient(jacobian, residuals, x))
            trial_x = [a + b for a, b in zip(x, step, strict=True)]
            new = _residuals(_at(parameters, entries, names, trial_x), trials, scored)
            if _cost(new, trial_x) < _cost(residuals, x):
                gain = _cost(residuals, x) - _cost(new, trial_x)
                x, residuals, damping, moved = trial_x, new, damping / 5, gain > LEAST_GAIN
                break
            damping *= 5
        if not moved:
            break
    variances = _inverse_diagonal(_normal(jacobian, 0.0)) if jacobian else [1.0] * len(x)
    return _at(parameters, entries, names, x, [sqrt(v) for v in variances])


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
            if spreads[i] < INFORMED:
                basis = Basis.MEASURED
        table[name[1]] = replace(entry, value=value, spread=spread, basis=basis)
    return replace(parameters, **changed)  # type: ignore[arg-type]


def _residuals(
    parameters: SpeedParameters, trials: Sequence[Trial], scored: frozenset[str]
) -> list[float]:
    found = []
    for trial in trials:
        said = predicted(trial, parameters)
        names = sorted(said.keys() & scored)
        # Several quantities of one run are not independent: together they count as one.
        weight = 1 / (MEASUREMENT_SPREAD * sqrt(max(1, len(names))))
        found += [weight * log(said[n] / trial.measurement.measured[n]) for n in names]
    return found


def _jacobian(
    parameters: SpeedParameters,
    entries: Mapping[Name, Parameter],
    names: Sequence[Name],
    x: Sequence[float],
    trials: Sequence[Trial],
    scored: frozenset[str],
    residuals: Sequence[float],
) -> list[list[float]]:
    """Rows by parameter: how much each residual moves with it."""
    rows = []
    for i in range(len(x)):
        moved = [*x[:i], x[i] + STEP, *x[i + 1 :]]
        new = _residuals(_at(parameters, entries, names, moved), trials, scored)
        rows.append([(a - b) / STEP for a, b in zip(new, residuals, strict=True)])
    return rows


def _cost(residuals: Sequence[float], x: Sequence[float]) -> float:
    return sum(r * r for r in residuals) + sum(v * v for v in x)


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
    matrix = [
        [sum(a * b for a, b in zip(jacobian[i], jacobian[j], strict=True)) for j in range(size)]
        for i in range(size)
    ]
    for i in range(size):
        matrix[i][i] += 1.0 + damping * (1.0 + matrix[i][i])
    return matrix


def _solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solution of a symmetric positive definite system, by Cholesky decomposition."""
    lower = _cholesky(matrix)
    size = len(right)
    y: list[float] = []
    for i in range(size):
        y.append((right[i] - sum(lower[i][k] * y[k] for k in range(i))) / lower[i][i])
    x = [0.0] * size
    for i in reversed(range(size)):
        rest = sum(lower[k][i] * x[k] for k in range(i + 1, size))
        x[i] = (y[i] - rest) / lower[i][i]
    return x


def _cholesky(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    size = len(matrix)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            lower[i][j] = sqrt(rest) if i == j else rest / lower[j][j]
    return lower


def _inverse_diagonal(matrix: Sequence[Sequence[float]]) -> list[float]:
    size = len(matrix)
    units = [[float(i == j) for j in range(size)] for i in range(size)]
    return [_solve(matrix, unit)[i] for i, unit in enumerate(units)]
