"""Whether measured loads tell the parameters that matter, and if not, which load would.

Some parameters no load of one deployment can tell apart: what a layer's kernels and what an
all-reduce take, say, both pass in every step. They are looked at as one group, by their joint
effect. A group that a measured load depends on has to be known better than before, or well enough.
"""

from collections.abc import Sequence
from math import sqrt

from k31ctl.core.calibrated_spread import Name
from k31ctl.core.deployed import Deployed
from k31ctl.core.learning import Lesson, prior_spread, slopes
from k31ctl.core.robust_fit import Fit, Row, information
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.core.symmetric import Matrix, inverse, quadratic
from k31ctl.core.workload import Workload
from k31ctl.values import frozen

# Columns of the grid's slopes that are parallel to so much belong to one group.
PARALLEL = 0.9
# A group matters where a measured figure moves by so much of its move.
MATTERS = 0.2
# A joint effect is known within so much of its value, or so many times better than before.
WELL_KNOWN = 0.10
BETTER = 0.7
USERS = (1, 4, 16, 64, 256)
PROMPTS = (128, 2048, 16_384)


@frozen
class Group:
    """Parameters that no load of the grid tells apart, with the spread of their joint effect."""

    names: tuple[Name, ...]
    matters: float
    before: float
    after: float

    @property
    def enough(self) -> float:
        """The spread from which on the joint effect counts as known."""
        return max(WELL_KNOWN, BETTER * self.before)

    @property
    def is_identified(self) -> bool:
        """Whether the joint effect is known."""
        return self.after <= self.enough


@frozen
class Missing:
    """A group that is not identified, and the smallest load that would tell enough of it."""

    group: Group
    load: Workload


def grid(deployments: Sequence[Deployed], measured: Sequence[Lesson]) -> list[Lesson]:
    """Loads that could be measured on these deployments: users, and lengths around those seen."""
    outputs = sorted(lesson.load.output_tokens for lesson in measured)
    output = max(8, outputs[len(outputs) // 2])
    prompts = sorted({*PROMPTS, *(lesson.load.prompt_tokens for lesson in measured)})
    found = []
    for deployed in deployments:
        for prompt in prompts:
            for users in USERS:
                load = Workload(
                    prompt_tokens=prompt,
                    output_tokens=output,
                    cached_fraction=0.0,
                    concurrency=users,
                    rate_per_s=None,
                )
                if deployed.most_running(load) * deployed.case.layout.dp >= users:
                    found.append(Lesson(deployed=deployed, load=load, measured={}, name=""))
    return found


def groups(fit: Fit, before: SpeedParameters, possible: Sequence[Lesson]) -> list[Group]:
    """The groups of the fit's parameters, those that matter most first."""
    known = [prior_spread(before, name) for name in fit.names]
    columns = _columns(fit, possible)
    members: list[list[int]] = []
    for i in sorted(range(len(columns)), key=lambda i: -_norm(columns[i]) * known[i]):
        near = next((m for m in members if _cosine(columns[m[0]], columns[i]) > PARALLEL), None)
        if near is None:
            members.append([i])
        else:
            near.append(i)
    prior = [[known[i] ** 2 * (i == j) for j in range(len(known))] for i in range(len(known))]
    found = [
        Group(
            names=tuple(fit.names[i] for i in own),
            matters=max(abs(sum(row.slopes[i] for i in own)) for row in fit.rows),
            before=_joint(prior, columns, own),
            after=_joint(fit.covariance, columns, own),
        )
        for own in members
    ]
    return sorted(found, key=lambda group: -group.matters)


def missing(
    fit: Fit, before: SpeedParameters, possible: Sequence[Lesson], found: Sequence[Group]
) -> list[Missing]:
    """The found groups that matter and are not known, each with the load to measure for it."""
    unknown = [group for group in found if group.matters >= MATTERS and not group.is_identified]
    if not unknown:
        return []
    known = [prior_spread(before, name) for name in fit.names]
    columns = _columns(fit, possible)
    weights = _even(fit, fit.rows)
    after = [
        (lesson, inverse(information([*fit.rows, *new], [*weights, *_even(fit, new)], known)))
        for lesson in possible
        if (new := _possible_rows(fit, lesson))
    ]
    lacking = []
    for group in unknown:
        own = [fit.names.index(name) for name in group.names]
        load = _best(group, [(_joint(matrix, columns, own), at.load) for at, matrix in after])
        lacking.append(Missing(group=group, load=load))
    return lacking


def _best(group: Group, after: Sequence[tuple[float, Workload]]) -> Workload:
    """The smallest load that is enough; the one that tells most where none is."""
    enough = [load for spread, load in after if spread <= group.enough]
    if enough:
        return min(enough, key=_tokens)
    return min(after, key=lambda pair: (pair[0], _tokens(pair[1])))[1]


def _tokens(load: Workload) -> int:
    return (load.concurrency or 1) * (load.prompt_tokens + load.output_tokens)


def _possible_rows(fit: Fit, lesson: Lesson) -> list[Row]:
    moves = slopes(lesson, fit.parameters, fit.names)
    return [
        Row(lesson=lesson, figure=figure, residual=0.0, slopes=tuple(found))
        for figure, found in moves.items()
    ]


def _even(fit: Fit, rows: Sequence[Row]) -> list[float]:
    return [1 / fit.spreads[row.figure] ** 2 for row in rows]


def _columns(fit: Fit, possible: Sequence[Lesson]) -> list[list[float]]:
    """How every figure of every possible load moves with each parameter, in its own spreads."""
    rows = [row for lesson in possible for row in _possible_rows(fit, lesson)]
    spreads = [fit.spreads[row.figure] for row in rows]
    return [
        [row.slopes[i] / spread for row, spread in zip(rows, spreads, strict=True)]
        for i in range(len(fit.names))
    ]


def _norm(column: Sequence[float]) -> float:
    return sqrt(sum(value * value for value in column))


def _cosine(one: Sequence[float], two: Sequence[float]) -> float:
    size = _norm(one) * _norm(two)
    return abs(sum(a * b for a, b in zip(one, two, strict=True))) / size if size else 0.0


def _shares(columns: Sequence[Sequence[float]], own: Sequence[int]) -> tuple[float, ...]:
    """What part of the group's effect each parameter has, with its sign against the first."""
    lead = columns[own[0]]
    signed = [
        _norm(columns[i])
        * (1 if sum(a * b for a, b in zip(lead, columns[i], strict=True)) >= 0 else -1)
        for i in own
    ]
    total = sum(map(abs, signed)) or 1.0
    return tuple(value / total for value in signed)


def _joint(matrix: Matrix, columns: Sequence[Sequence[float]], own: Sequence[int]) -> float:
    """Spread of the joint effect of a group under a covariance."""
    vector = [0.0] * len(columns)
    for i, share in zip(own, _shares(columns, own), strict=True):
        vector[i] = share
    return sqrt(max(0.0, quadratic(matrix, vector)))
