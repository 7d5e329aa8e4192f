"""What a run consists of: stages, each a closed loop of users or arrivals at set times."""

from random import Random

from k31ctl.core.arrivals import (
    Arrival,
    OpenLoop,
    RequestSize,
    constant_arrivals,
    gamma_arrivals,
    ramp_times,
)
from k31ctl.values import frozen


@frozen
class Sizes:
    """Lengths of requests: uniform within a spread around a prompt and an output."""

    prompt_tokens: int
    output_tokens: int
    spread_fraction: float

    def draw(self, random: Random) -> RequestSize:
        """Return one size."""
        return RequestSize(
            prompt_tokens=self._around(self.prompt_tokens, random),
            output_tokens=self._around(self.output_tokens, random),
            cached_tokens=0,
        )

    def _around(self, tokens: int, random: Random) -> int:
        if not self.spread_fraction:
            return tokens
        return max(1, round(tokens * (1 + self.spread_fraction * (2 * random.random() - 1))))


@frozen
class Stage:
    """One load, for a time or a number of requests, whichever ends first.

    Either ``concurrency`` users each send their next request when the last has ended, or
    ``arrivals`` come when they come; ``rate`` is how many a second, where one was asked for.
    """

    name: str
    concurrency: int | None
    rate: float | None
    arrivals: OpenLoop | None
    duration_s: float | None
    num_requests: int | None
    repeat: int


def closed_stage(
    concurrency: int, *, duration_s: float | None, num_requests: int | None, repeat: int
) -> Stage:
    """A closed loop of users."""
    return Stage(
        name=f"concurrency {concurrency}",
        concurrency=concurrency,
        rate=None,
        arrivals=None,
        duration_s=duration_s,
        num_requests=num_requests,
        repeat=repeat,
    )


def open_stage(
    rate: float,
    *,
    burstiness: float | None,
    sizes: Sizes,
    duration_s: float | None,
    num_requests: int | None,
    repeat: int,
    random: Random,
) -> Stage:
    """Arrivals at a rate: evenly where ``burstiness`` is None, else with gamma-distributed gaps.

    ``burstiness`` is the shape of ``core.arrivals.gamma_arrivals``: 1 is a Poisson process, below
    it come bursts.
    """
    count = num_requests or max(1, round(rate * (duration_s or 0.0)))
    drawn = [sizes.draw(random) for _ in range(count)]
    if burstiness is None:
        arrivals = constant_arrivals(drawn, rate_per_s=rate)
    else:
        arrivals = gamma_arrivals(drawn, rate_per_s=rate, shape=burstiness, random=random)
    return Stage(
        name=f"{rate:g} requests/s",
        concurrency=None,
        rate=rate,
        arrivals=arrivals,
        duration_s=None,
        num_requests=count,
        repeat=repeat,
    )


def trace_stage(trace: OpenLoop, *, speed: float, num_requests: int | None, repeat: int) -> Stage:
    """The arrivals of a trace, ``speed`` times as fast."""
    kept = trace.arrivals[:num_requests]
    sped = tuple(
        type(arrival)(arrival_s=arrival.arrival_s / speed, size=arrival.size) for arrival in kept
    )
    return Stage(
        name="trace" if speed == 1 else f"trace x{speed:g}",
        concurrency=None,
        rate=None,
        arrivals=OpenLoop(arrivals=sped),
        duration_s=None,
        num_requests=len(sped),
        repeat=repeat,
    )


def ramp_stage(
    rates: tuple[float, float],
    *,
    burstiness: float | None,
    sizes: Sizes,
    duration_s: float,
    repeat: int,
    random: Random,
) -> Stage:
    """Arrivals whose rate goes evenly from one value to another."""
    first, last = rates
    times_s = ramp_times(
        from_per_s=first, to_per_s=last, duration_s=duration_s, shape=burstiness, random=random
    )
    arrivals = tuple(Arrival(arrival_s=at_s, size=sizes.draw(random)) for at_s in times_s)
    return Stage(
        name=f"ramp {first:g} to {last:g} requests/s",
        concurrency=None,
        rate=None,
        arrivals=OpenLoop(arrivals=arrivals),
        duration_s=None,
        num_requests=len(arrivals),
        repeat=repeat,
    )


def doubled(
    stage: Stage,
    *,
    burstiness: float | None,
    sizes: Sizes,
    duration_s: float | None,
    random: Random,
) -> Stage:
    """A load like this with twice the users or the rate, for as long.

    Where the number of requests is set and not the time, there are twice as many of them.
    """
    more = stage.num_requests and stage.num_requests * 2
    if stage.concurrency is not None:
        return closed_stage(
            stage.concurrency * 2,
            duration_s=stage.duration_s,
            num_requests=more,
            repeat=stage.repeat,
        )
    assert stage.rate is not None
    return open_stage(
        stage.rate * 2,
        burstiness=burstiness,
        sizes=sizes,
        duration_s=duration_s,
        num_requests=more if duration_s is None else None,
        repeat=stage.repeat,
        random=random,
    )
