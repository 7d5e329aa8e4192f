"""Student's t distribution, without a library that would have to be installed for it."""

from math import exp, inf, lgamma, log, log1p, pi, sqrt
from typing import Final

_MOST_TERMS: Final = 500
_SMALL: Final = 1e-300
_CLOSE: Final = 1e-14
_MOST_STEPS: Final = 60
_NEAR: Final = 1e-12


def student_tail(t: float, *, degrees: float) -> float:
    """Probability that Student's t with so many degrees of freedom is above ``t``.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.1 and 26.5.27.
    """
    if t == inf:
        return 0.0
    if t == -inf:
        return 1.0
    half = _beta_share(degrees / (degrees + t * t), degrees / 2, 0.5) / 2
    return half if t >= 0 else 1 - half


def student_quantile(tail: float, *, degrees: float) -> float:
    """The value that Student's t is above with probability ``tail``, between 0 and 1."""
    if not 0 < tail < 1:
        raise ValueError("a tail is between 0 and 1")
    if tail > 1 / 2:
        return -student_quantile(1 - tail, degrees=degrees)
    low, high = 0.0, 1.0
    while student_tail(high, degrees=degrees) > tail:
        low, high = high, 2 * high
    t = (low + high) / 2
    for _ in range(_MOST_STEPS):  # Newton's method on the logarithm, kept between two bounds
        found = student_tail(t, degrees=degrees)
        low, high = (t, high) if found > tail else (low, t)
        step = log(found / tail) * found / _density(t, degrees)
        if abs(step) <= _NEAR * t:
            break
        t = t + step if low < t + step < high else (low + high) / 2
    return t


def _density(t: float, degrees: float) -> float:
    n = degrees
    front = exp(lgamma((n + 1) / 2) - lgamma(n / 2)) / sqrt(n * pi)
    return float(front * (1 + t * t / n) ** (-(n + 1) / 2))


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, from its first term on.

    Source: Abramowitz and Stegun, 26.5.8, evaluated forwards as of Lentz, Applied Optics 15(3),
    1976.
    """
    c, d = 1.0, _away(1 - (a + b) * x / (a + 1))
    d = 1 / d
    found = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            found *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return found


def _away(value: float) -> float:
    """A value that can be divided by."""
    return value if abs(value) > _SMALL else _SMALL
