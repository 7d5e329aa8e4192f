"""A closed loop through a pool of prefill instances and a pool of decode instances."""

from collections.abc import Callable
from typing import Literal

from k31ctl.values import frozen

BISECTIONS = 60
# Above it a queue is longer than the work in hand, and a second server would be felt.
BUSY = 0.75


@frozen
class PoolRates:
    """What the two pools do with one size of request.

    ``prefill_s`` is one prompt alone on an instance, ``prefill_requests_per_s`` what a busy
    instance finishes. ``decode_s`` gives the seconds that an attention group's running requests
    take for the whole answer. ``decode_groups`` attention groups of ``most_running`` each.
    """

    prefill_instances: int
    prefill_s: float
    prefill_requests_per_s: float
    between_s: float
    decode_s: Callable[[float], float]
    decode_groups: int
    most_running: float


@frozen
class Loop:
    """The steady state: requests per second, and where a request spends its time.

    ``running`` is per attention group of the decode pool; ``wait_s`` lies before prefill or, where
    the decode cache is full, before a place there.
    """

    requests_per_s: float
    running: float
    wait_s: float
    limit: Literal["prefill", "decode", "requests"]


def pool_loop(rates: PoolRates, concurrency: float) -> Loop:
    """The state in which all requests of the loop are somewhere.

    Prefill is one queue before several servers, approximated as a server of their joint rate and a
    delay; a request that arrives finds what the others left (Schweitzer's approximation of mean
    value analysis; Seidmann's of several servers).

    Symbols: C requests, l per second, S seconds between two requests that a busy pool finishes,
    n running in each of G groups that take D(n).
    Formula: l = G n / D(n); waiting S / (1 - l S (C-1)/C) - S; C = l (prefill + waiting + between)
    + G n, solved for n.
    """
    C, G = concurrency, rates.decode_groups
    S = 1 / (rates.prefill_instances * rates.prefill_requests_per_s)
    others = (C - 1) / C

    def wait_s(requests_per_s: float) -> float:
        left = 1 - requests_per_s * S * others
        return S / left - S if left > 0 else float("inf")

    def requests(running: float) -> float:
        rate = G * running / rates.decode_s(running)
        if rate * S >= 1:
            return float("inf")
        return rate * (rates.prefill_s + wait_s(rate) + rates.between_s) + G * running

    most = min(rates.most_running, C / G)
    low, high = 0.0, most
    if requests(most) <= C:
        low = most
    else:
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if requests(middle) <= C else (low, middle)
    rate = G * low / rates.decode_s(low)
    inside = rates.prefill_s + rates.between_s + rates.decode_s(low)
    return Loop(
        requests_per_s=rate,
        running=low,
        wait_s=max(0.0, C / rate - inside),
        limit=_limit(rates, rate * S, low, most, C),
    )


def _limit(
    rates: PoolRates, busy: float, running: float, most: float, concurrency: float
) -> Literal["prefill", "decode", "requests"]:
    """What would have to grow for more: a pool, or the requests that are offered."""
    if running >= most and rates.most_running < concurrency / rates.decode_groups:
        return "decode"
    waiting = concurrency - running * rates.decode_groups
    if busy > BUSY and waiting > rates.prefill_instances:
        return "prefill"
    return "requests"
