"""Which requests come, and when: users in a closed loop, or arrivals whatever the service does."""

from collections.abc import Sequence
from itertools import pairwise
from math import cos, log, log1p, pi, sqrt
from typing import Protocol

from k31ctl.core.workload import Workload
from k31ctl.values import frozen


class Randomness(Protocol):
    """Where numbers come from; ``random.Random(seed)`` is one."""

    def random(self) -> float:
        """Return the next number, at least 0 and below 1."""
        ...


@frozen
class RequestSize:
    """Tokens of one request; ``cached_tokens`` of the prompt are found in the prefix cache.

    ``blocks`` name the pieces that its prompt begins with, where a trace knows them: prompts that
    begin with the same blocks begin with the same text.
    """

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    blocks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """State what cannot be true of a request."""
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError("prompt_tokens and output_tokens must be at least 1")
        if not 0 <= self.cached_tokens < self.prompt_tokens:
            raise ValueError("cached_tokens must be at least 0 and below prompt_tokens")


@frozen
class Arrival:
    """A request and when it comes."""

    arrival_s: float
    size: RequestSize


@frozen
class OpenLoop:
    """Requests that come when they come, in the order of their arrival."""

    arrivals: tuple[Arrival, ...]

    def __post_init__(self) -> None:
        """State what cannot be true of arrivals."""
        times = [arrival.arrival_s for arrival in self.arrivals]
        if not times or any(later < earlier for earlier, later in pairwise(times)):
            raise ValueError("arrivals must be in order and at least one")


@frozen
class ClosedLoop:
    """Users who each send the next request ``think_s`` after their previous one has finished."""

    sizes: tuple[RequestSize, ...]
    num_users: int
    think_s: float

    def __post_init__(self) -> None:
        """State what cannot be true of users."""
        if not self.sizes or self.num_users < 1 or not self.think_s >= 0:
            raise ValueError("a closed loop needs requests, users and a think time of 0 or more")


Load = OpenLoop | ClosedLoop


def request_sizes(
    workload: Workload, *, num_requests: int, spread_fraction: float, random: Randomness
) -> tuple[RequestSize, ...]:
    """Sizes of requests around those of a workload.

    Prompts and outputs are uniform between (1 - spread) and (1 + spread) times the workload's, as
    ``random_range_ratio`` of the engines' own benchmarks; 0 makes all alike.
    """
    if not 0 <= spread_fraction <= 1:
        raise ValueError("spread_fraction must be between 0 and 1")

    def around(tokens: int) -> int:
        if not spread_fraction:
            return tokens
        return max(1, round(tokens * (1 + spread_fraction * (2 * random.random() - 1))))

    def one() -> RequestSize:
        prompt = around(workload.prompt_tokens)
        return RequestSize(
            prompt_tokens=prompt,
            output_tokens=around(workload.output_tokens),
            cached_tokens=min(prompt - 1, round(prompt * workload.cached_fraction)),
        )

    return tuple(one() for _ in range(num_requests))


def constant_arrivals(sizes: Sequence[RequestSize], *, rate_per_s: float) -> OpenLoop:
    """One request every 1 / rate seconds, the first at 0."""
    return _at([1.0] * len(sizes), sizes, rate_per_s)


def gamma_arrivals(
    sizes: Sequence[RequestSize], *, rate_per_s: float, shape: float, random: Randomness
) -> OpenLoop:
    """Requests with gamma-distributed gaps of mean 1 / rate, the first at 0.

    ``shape`` 1 is a Poisson process; below 1 requests come in bursts, above 1 more evenly. The
    squared coefficient of variation of the gaps is 1 / shape. It is what ``vllm bench serve``
    calls burstiness.
    """
    if not shape > 0:
        raise ValueError("shape must be above 0")
    return _at([_gamma(shape, random) / shape for _ in sizes], sizes, rate_per_s)


def poisson_arrivals(
    sizes: Sequence[RequestSize], *, rate_per_s: float, random: Randomness
) -> OpenLoop:
    """Requests that come independently of each other, ``rate_per_s`` on average, from 0 on."""
    return gamma_arrivals(sizes, rate_per_s=rate_per_s, shape=1.0, random=random)


def ramp_times(
    *,
    from_per_s: float,
    to_per_s: float,
    duration_s: float,
    shape: float | None,
    random: Randomness,
) -> list[float]:
    """Times of requests, in seconds, whose rate goes evenly from one value to another.

    The gaps of ``gamma_arrivals``, of ``constant_arrivals`` where ``shape`` is None, are taken at
    a rate of 1 and then moved to where as many requests have come at the changing rate.

    Symbols: a first rate, c growth of the rate per second, u requests so far.
    Formula: u = a t + c t^2 / 2, so t = 2 u / (a + sqrt(a^2 + 2 c u))
    Source: the time change of an inhomogeneous Poisson process; Cinlar, Introduction to Stochastic
    Processes, 1975, chapter 4.
    """
    if not (from_per_s > 0 and to_per_s > 0 and duration_s > 0):
        raise ValueError("rates and duration must be above 0")
    a, c = from_per_s, (to_per_s - from_per_s) / duration_s
    most = (from_per_s + to_per_s) / 2 * duration_s
    found, u = [], 0.0
    while u < most:
        found.append(2 * u / (a + sqrt(max(a * a + 2 * c * u, 0.0))))
        u += 1.0 if shape is None else _gamma(shape, random) / shape
    return found


def _at(gaps: Sequence[float], sizes: Sequence[RequestSize], rate_per_s: float) -> OpenLoop:
    if not rate_per_s > 0:
        raise ValueError("rate_per_s must be above 0")
    now, found = 0.0, []
    for gap, size in zip(gaps, sizes, strict=True):
        found.append(Arrival(arrival_s=now / rate_per_s, size=size))
        now += gap
    return OpenLoop(arrivals=tuple(found))


def _gamma(shape: float, random: Randomness) -> float:
    """One draw of a gamma distribution with this shape and scale 1.

    Source: Marsaglia and Tsang, A simple method for generating gamma variables, ACM TOMS 26(3),
    2000; below 1 their boost, a draw of shape + 1 times U^(1 / shape).
    """
    if shape == 1:
        return -log1p(-random.random())
    if shape < 1:
        return _gamma(shape + 1, random) * float((1 - random.random()) ** (1 / shape))
    d = shape - 1 / 3
    c = 1 / sqrt(9 * d)
    while True:
        x = _normal(random)
        v = (1 + c * x) ** 3
        if v > 0 and log(1 - random.random()) < x * x / 2 + d - d * v + d * log(v):
            return d * v


def _normal(random: Randomness) -> float:
    """One draw of a standard normal distribution (Box and Muller)."""
    radius = sqrt(-2 * log1p(-random.random()))
    return radius * cos(2 * pi * random.random())
