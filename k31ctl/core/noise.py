"""Whether repeated measurements of one thing differ from those of another beyond their noise.

Two tests are made of the means over repeats: Welch's t, and Yuen's, which leaves out a fifth of
the repeats at either end and so is not blinded by one that something else disturbed. The one that
tells more is taken, and its probability doubled for having had the choice. Both add to the noise
between repeats the noise between runs, which repeats of one run cannot show: two runs of the same
thing lie further apart than their repeats, since these share one state of the machine.
"""

from collections.abc import Sequence
from math import exp, expm1, fsum, inf, log, log1p, sqrt

from k31ctl.core.student import student_quantile, student_tail
from k31ctl.values import frozen

FEWEST = 2
"""Repeats of each side that a noise can be told from."""
_MOST_DEGREES, _MOST_EXPONENT = 1e6, 700.0
_TRIMMED = 5  # one repeat in so many is left out at either end


@frozen
class Change:
    """How a figure changed from some repeats to others.

    ``before`` and ``after`` are means over repeats: geometric where all figures are above 0, and
    the change is that of their logarithms; else arithmetic, and the change is in parts of
    ``before``. Where ``is_trimmed``, a fifth of the repeats at either end is left out of them.
    ``low`` to ``high`` is the 95 % interval of the change, ``p`` the probability of one as large
    either way where there is none; all three are None with fewer than two repeats. ``degrees`` and
    ``error`` are the degrees of freedom and the standard error of the change on the scale that it
    was tested on, and ``choices`` is how many tests there were to choose from.
    """

    before: float
    after: float
    change: float
    low: float | None
    high: float | None
    p: float | None
    degrees: float | None
    error: float | None
    is_ratio: bool
    is_trimmed: bool
    choices: int


@frozen
class _Side:
    """Repeats of one side: their mean, its squared standard error and degrees of freedom."""

    mean: float
    square: float
    degrees: int


def change_between(
    before: Sequence[float], after: Sequence[float], *, between_runs: float
) -> Change | None:
    """Return the relative change; None where there is nothing to take a part of.

    ``between_runs`` is the standard deviation between runs of the same, in parts of the figure.
    """
    if not before or not after:
        return None
    is_ratio = min(*before, *after) > 0
    base = _mean(before)
    if not is_ratio and base <= 0:
        return None
    if is_ratio:
        a, b = [log(value) for value in before], [log(value) for value in after]
        return _tested(a, b, base=1.0, is_ratio=True, between=between_runs)
    a, b = [value / base for value in before], [value / base for value in after]
    return _tested(a, b, base=base, is_ratio=False, between=between_runs)


def difference_between(
    before: Sequence[float], after: Sequence[float], *, between_runs: float
) -> Change | None:
    """Return the change as the difference of the means itself, for shares that may be 0."""
    if not before or not after:
        return None
    return _tested(list(before), list(after), base=1.0, is_ratio=False, between=between_runs)


def _tested(
    a: list[float], b: list[float], *, base: float, is_ratio: bool, between: float
) -> Change:
    def changed(x: _Side, y: _Side, choices: int, is_trimmed: bool) -> Change:
        return _change(
            x, y, base=base, is_ratio=is_ratio, between=between, choices=choices,
            is_trimmed=is_trimmed,
        )  # fmt: skip

    if min(len(a), len(b)) < _TRIMMED:
        return changed(_whole(a), _whole(b), 1, False)
    welch = changed(_whole(a), _whole(b), 2, False)
    yuen = changed(_trimmed(a), _trimmed(b), 2, True)
    assert welch.p is not None and yuen.p is not None
    return yuen if yuen.p < welch.p else welch


def _change(
    a: _Side,
    b: _Side,
    *,
    base: float,
    is_ratio: bool,
    between: float,
    choices: int,
    is_trimmed: bool,
) -> Change:
    difference = b.mean - a.mean
    is_known = min(a.degrees, b.degrees) > 0
    degrees = error = low = high = p = None
    if is_known:
        error = sqrt(a.square + b.square + 2 * between**2)
        degrees = _degrees(a, b, error)
        half = student_quantile(0.025, degrees=degrees) * error
        low, high = _shown(difference - half, is_ratio), _shown(difference + half, is_ratio)
        p = min(1.0, choices * _p(difference, error, degrees))
    return Change(
        before=exp(a.mean) if is_ratio else a.mean * base,
        after=exp(b.mean) if is_ratio else b.mean * base,
        change=_shown(difference, is_ratio),
        low=low,
        high=high,
        p=p,
        degrees=degrees,
        error=error,
        is_ratio=is_ratio,
        is_trimmed=is_trimmed,
        choices=choices,
    )


def _whole(values: Sequence[float]) -> _Side:
    """All repeats, for Welch's test.

    Source: Welch, The generalization of Student's problem when several different population
    variances are involved, Biometrika 34, 1947.
    """
    n = len(values)
    square = _variance(values) / n if n >= FEWEST else 0.0
    return _Side(mean=_mean(values), square=square, degrees=n - 1)


def _trimmed(values: Sequence[float]) -> _Side:
    """The repeats in the middle, with the spread that those at the ends are pulled in to.

    Source: Yuen, The two-sample trimmed t for unequal population variances, Biometrika 61, 1974.
    """
    ordered, n = sorted(values), len(values)
    g = n // _TRIMMED
    h = n - 2 * g
    middle = ordered[g : n - g]
    pulled = [middle[0]] * g + middle + [middle[-1]] * g
    square = (n - 1) * _variance(pulled) / (h * (h - 1))
    return _Side(mean=_mean(middle), square=square, degrees=h - 1)


def _degrees(a: _Side, b: _Side, error: float) -> float:
    """Welch's and Satterthwaite's degrees of freedom; the noise between runs is taken as known."""
    estimated = a.square**2 / a.degrees + b.square**2 / b.degrees
    return min(error**4 / estimated, _MOST_DEGREES) if estimated else _MOST_DEGREES


def _shown(difference: float, is_ratio: bool) -> float:
    if not is_ratio:
        return difference
    return expm1(difference) if difference < _MOST_EXPONENT else inf


def _p(difference: float, error: float, degrees: float) -> float:
    if not error:
        return 0.0 if difference else 1.0
    return 2 * student_tail(abs(difference) / error, degrees=degrees)


def adjusted(ps: Sequence[float]) -> list[float]:
    """Return probabilities that hold for all tests at once, whatever they have to do with another.

    Source: Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of
    Statistics 6(2), 1979.
    """
    order = sorted(range(len(ps)), key=lambda n: ps[n])
    found, most = [0.0] * len(ps), 0.0
    for place, n in enumerate(order):
        most = max(most, min(1.0, ps[n] * (len(ps) - place)))
        found[n] = most
    return found


def detectable(
    change: Change, *, alpha: float, power: float, at_least: float, num_tests: int
) -> float | None:
    """The least change that would be told in ``power`` of all cases; None where nothing is known.

    It has to be beyond the noise at ``alpha`` shared among all tests, and seen as more than
    ``at_least``. An estimate from the noise that was found.
    """
    if change.error is None or change.degrees is None:
        return None
    reach = student_quantile(1 - power, degrees=change.degrees)
    beyond = (
        student_quantile(alpha / (2 * num_tests * change.choices), degrees=change.degrees) + reach
    )
    least = log1p(at_least) if change.is_ratio else at_least
    needed = max(beyond * change.error, least + reach * change.error)
    return _shown(needed, change.is_ratio)


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
