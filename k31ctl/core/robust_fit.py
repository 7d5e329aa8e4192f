"""The most probable parameters given measured loads, some of which may be far off.

Residuals are Student-t distributed with few degrees of freedom, which is least squares whose
weights fall with a figure's distance; parameters are normal in their logarithms around what is
known of them. How far the model still misses is estimated from what remains, and starts from what
runs of others miss, so that a few good loads do not make it certain.
"""

from collections.abc import Mapping, Sequence
from math import sqrt

from k31ctl.core.calibrated_spread import Name
from k31ctl.core.fit import FIRST_TOKEN_SPREAD, MEASUREMENT_SPREAD
from k31ctl.core.learning import Lesson, at, prior_spread, said, slopes
from k31ctl.core.observed import E2E, ITL, TPOT, TTFT
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.core.symmetric import Matrix, inverse, solve
from k31ctl.values import frozen

DEGREES = 4.0
# What a fitted model is believed to miss of runs that went into the fit, as so many figures' word.
MISSED = {
    **dict.fromkeys((ITL, TPOT, E2E), MEASUREMENT_SPREAD),
    TTFT: FIRST_TOKEN_SPREAD,
}
WORTH = 1.0
LEAST_SPREAD = 0.01
ROUNDS, MOST_TRIES = 25, 8
SETTLED = 1e-4
FAR = 4.0


@frozen
class Row:
    """One figure of one load: how far it is off, and how it moves with every parameter."""

    lesson: Lesson
    figure: str
    residual: float
    slopes: tuple[float, ...]


@frozen
class Fit:
    """Parameters at their most probable values, and the covariance of their logarithms.

    ``spreads`` is how far the model still misses, by figure; ``rows`` are taken at the fit.
    """

    parameters: SpeedParameters
    names: tuple[Name, ...]
    covariance: Matrix
    spreads: Mapping[str, float]
    rows: tuple[Row, ...]

    def far(self, row: Row) -> bool:
        """Whether a figure is so far off that it had little weight."""
        return abs(row.residual) > FAR * self.spreads[row.figure]


def robust_fit(
    parameters: SpeedParameters, names: Sequence[Name], lessons: Sequence[Lesson]
) -> Fit:
    """Fit; ``parameters`` are the centre of what is believed before."""
    known = [prior_spread(parameters, name) for name in names]
    spreads = dict(MISSED)
    x = [0.0] * len(names)
    rows = _rows(parameters, names, lessons)
    for _ in range(ROUNDS):
        weights = _weights(rows, spreads)
        new_x, rows = _moved(parameters, names, lessons, known, x, rows, weights)
        spreads = _spreads(rows, weights, known)
        moved = max((abs(a - b) for a, b in zip(new_x, x, strict=True)), default=0.0)
        x = new_x
        if moved < SETTLED:
            break
    weights = _weights(rows, spreads)
    return Fit(
        parameters=at(parameters, names, x),
        names=tuple(names),
        covariance=inverse(information(rows, weights, known)),
        spreads=spreads,
        rows=tuple(rows),
    )


def information(rows: Sequence[Row], weights: Sequence[float], known: Sequence[float]) -> Matrix:
    """Curvature of half the cost: what the figures say, and what was known before."""
    size = len(known)
    matrix = [[0.0] * size for _ in range(size)]
    for row, weight in zip(rows, weights, strict=True):
        for i, a in enumerate(row.slopes):
            if a:
                for j in range(i + 1):
                    matrix[i][j] += weight * a * row.slopes[j]
    for i in range(size):
        matrix[i][i] += 1 / known[i] ** 2
        for j in range(i):
            matrix[j][i] = matrix[i][j]
    return matrix


def _rows(
    parameters: SpeedParameters, names: Sequence[Name], lessons: Sequence[Lesson]
) -> list[Row]:
    found = []
    for lesson in lessons:
        model, moves = said(lesson, parameters), slopes(lesson, parameters, names)
        found += [
            Row(
                lesson=lesson,
                figure=figure,
                residual=measured - model[figure],
                slopes=tuple(moves[figure]),
            )
            for figure, measured in lesson.measured.items()
        ]
    return found


def _residuals(parameters: SpeedParameters, lessons: Sequence[Lesson]) -> list[float]:
    found = []
    for lesson in lessons:
        model = said(lesson, parameters)
        found += [measured - model[figure] for figure, measured in lesson.measured.items()]
    return found


def _weights(rows: Sequence[Row], spreads: Mapping[str, float]) -> list[float]:
    """Inverse variance of each figure, less for one that is far off."""
    return [
        (DEGREES + 1)
        / (DEGREES + (row.residual / spreads[row.figure]) ** 2)
        / spreads[row.figure] ** 2
        for row in rows
    ]


def _moved(
    parameters: SpeedParameters,
    names: Sequence[Name],
    lessons: Sequence[Lesson],
    known: Sequence[float],
    x: Sequence[float],
    rows: Sequence[Row],
    weights: Sequence[float],
) -> tuple[list[float], list[Row]]:
    """One damped step downhill for these weights, and the rows there."""

    def cost(residuals: Sequence[float], at_x: Sequence[float]) -> float:
        return sum(w * r * r for w, r in zip(weights, residuals, strict=True)) + sum(
            (v / s) ** 2 for v, s in zip(at_x, known, strict=True)
        )

    before = cost([row.residual for row in rows], x)
    curvature = information(rows, weights, known)
    downhill = [-value / spread**2 for value, spread in zip(x, known, strict=True)]
    for row, weight in zip(rows, weights, strict=True):
        for i, slope in enumerate(row.slopes):
            downhill[i] += weight * row.residual * slope
    damping = 0.0
    for _ in range(MOST_TRIES):
        damped = [
            [value * (1 + damping * (i == j)) for j, value in enumerate(line)]
            for i, line in enumerate(curvature)
        ]
        new_x = [a + b for a, b in zip(x, solve(damped, downhill), strict=True)]
        there = at(parameters, names, new_x)
        if cost(_residuals(there, lessons), new_x) <= before:
            return new_x, _rows(there, names, lessons)
        damping = damping * 4 + 0.1
    return list(x), list(rows)


def _spreads(
    rows: Sequence[Row],
    weights: Sequence[float],
    known: Sequence[float],
) -> dict[str, float]:
    """What is left between figures and model, by figure, with ``MISSED`` as a start.

    Figures that the parameters were bent to do not count as evidence: so many are taken off.
    """
    left = inverse(information(rows, weights, known))
    bent = sum(1 - left[i][i] / known[i] ** 2 for i in range(len(known)))
    share = max(0.1, 1 - bent / max(1, len(rows)))
    found = {}
    for figure, before in MISSED.items():
        own = [
            (row.residual, weight)
            for row, weight in zip(rows, weights, strict=True)
            if row.figure == figure
        ]
        # A far figure counts for what its weight says, in units of a figure at the centre.
        squares = sum(r * r * w for r, w in own)
        full = sum(w for _, w in own) or 1.0
        mean = squares / full
        count = share * len(own)
        found[figure] = max(
            LEAST_SPREAD,
            sqrt((WORTH * before**2 + len(own) * mean) / (WORTH + count)),
        )
    return found
