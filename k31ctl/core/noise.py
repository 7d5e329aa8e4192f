"""Whether repeated measurements of one thing differ from those of another beyond their noise."""

from collections.abc import Sequence
from math import exp, expm1, fsum, inf, log, log1p, sqrt

from k31ctl.core.student import student_quantile, student_tail
from k31ctl.values import frozen

FEWEST = 2
"""Repeats of each side that a noise can be told from."""


@frozen
class Change:
    """How a figure changed from some repeats to others.

    ``before`` and ``after`` are means over repeats: geometric where all figures are above 0, and
    the change is that of their logarithms; else arithmetic, and the change is in parts of
    ``before``. ``low`` to ``high`` is the 95 % interval of the change, ``p`` the probability of one
    as large either way where there is none; all three are None with fewer than two repeats.
    ``degrees`` and ``error`` are the degrees of freedom and the standard error of the change on the
    scale that it was tested on.
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


def change_between(before: Sequence[float], after: Sequence[float]) -> Change | None:
    """Return the change by Welch's t test; None where there is nothing to take a part of.

    Source: Welch, The generalization of Student's problem when several different population
    variances are involved, Biometrika 34, 1947.
    """
    if not before or not after:
        return None
    is_ratio = min(*before, *after) > 0
    base = _mean(before)
    if not is_ratio and base <= 0:
        return None
    if is_ratio:
        a, b = [log(value) for value in before], [log(value) for value in after]
    else:
        a, b = [value / base for value in before], [value / base for value in after]
    return _tested(a, b, base=base, is_ratio=is_ratio)


def difference_between(before: Sequence[float], after: Sequence[float]) -> Change | None:
    """Return the change as the difference of the means itself, for shares that may be 0."""
    if not before or not after:
        return None
    return _tested(list(before), list(after), base=1.0, is_ratio=False)


def _tested(a: list[float], b: list[float], *, base: float, is_ratio: bool) -> Change:
    shown = _as_ratio if is_ratio else _as_it_is
    difference = _mean(b) - _mean(a)
    found = Change(
        before=exp(_mean(a)) if is_ratio else _mean(a) * base,
        after=exp(_mean(b)) if is_ratio else _mean(b) * base,
        change=shown(difference),
        low=None,
        high=None,
        p=None,
        degrees=None,
        error=None,
        is_ratio=is_ratio,
    )
    if min(len(a), len(b)) < FEWEST:
        return found
    u, v = _variance(a) / len(a), _variance(b) / len(b)
    error = sqrt(u + v)
    degrees = _degrees(u, v, len(a), len(b))
    half = student_quantile(0.025, degrees=degrees) * error
    return Change(
        before=found.before,
        after=found.after,
        change=found.change,
        low=shown(difference - half),
        high=shown(difference + half),
        p=_p(difference, error, degrees),
        degrees=degrees,
        error=error,
        is_ratio=is_ratio,
    )


def _as_ratio(logarithm: float) -> float:
    return expm1(logarithm) if logarithm < 700 else inf  # noqa: PLR2004  exp(710) is no float


def _as_it_is(difference: float) -> float:
    return difference


def _p(difference: float, error: float, degrees: float) -> float:
    if not error:
        return 0.0 if difference else 1.0
    return min(1.0, 2 * student_tail(abs(difference) / error, degrees=degrees))


def _degrees(u: float, v: float, n: int, m: int) -> float:
    """Welch's and Satterthwaite's degrees of freedom."""
    if not u + v:
        return float(min(n, m) - 1)
    share = u / (u + v)
    return 1 / (share**2 / (n - 1) + (1 - share) ** 2 / (m - 1))


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
    beyond = student_quantile(alpha / (2 * num_tests), degrees=change.degrees) + reach
    least = log1p(at_least) if change.is_ratio else at_least
    needed = max(beyond * change.error, least + reach * change.error)
    return _as_ratio(needed) if change.is_ratio else needed


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
