"""Whether the client kept up, and the statistics that it is judged by."""

from array import array
from typing import Final

from k31ctl.bench.client import Client
from k31ctl.bench.result import ClientHealth, Spread
from k31ctl.bench.span import Span
from k31ctl.core.served import statistics

MOST_LAG_FRACTION: Final = 0.05
MOST_CPU_FRACTION: Final = 0.95
_MUCH_WAITING: Final = 0.1


def spread(values: "array[float]") -> Spread | None:
    """Statistics of values, None of none."""
    found = statistics(values)
    if found is None:
        return None
    return Spread(
        mean=found.mean_s,
        p50=found.p50_s,
        p90=found.p90_s,
        p95=found.p95_s,
        p99=found.p99_s,
        max=found.max_s,
    )


def health(span: Span, client: Client, *, ttft: Spread | None, itl: Spread | None) -> ClientHealth:
    """Judge whether the client kept up.

    It did not where the mean lag is more than a twentieth of the mean TTFT or of the mean gap
    between events, or where one core was all but full.
    """
    lag, lateness = client.lag.read(), client.lateness.read()
    of_ttft = lag.mean_s / ttft.mean if ttft and ttft.mean else None
    of_itl = lag.mean_s / itl.mean if itl and itl.mean else None
    length_s = max(span.end_s - span.start_s, 1e-9)
    cpu = span.cpu_s / length_s
    reasons = [
        f"the client's lag of {lag.mean_s * 1e3:.3g} ms is {fraction:.0%} of the mean {what}"
        for fraction, what in ((of_ttft, "TTFT"), (of_itl, "time between events"))
        if fraction is not None and fraction > MOST_LAG_FRACTION
    ]
    if cpu > MOST_CPU_FRACTION:
        reasons.append(f"the client used {cpu:.0%} of a processor core")
    wait_s = span.cpu_wait_s
    if reasons and wait_s and wait_s > _MUCH_WAITING * length_s:
        reasons.append(f"other processes had the cores for {wait_s / length_s:.0%} of the time")
    return ClientHealth(
        cpu_s=span.cpu_s,
        cpu_wait_s=span.cpu_wait_s,
        cpu_fraction=cpu,
        lag=lag,
        lateness=lateness,
        lag_of_ttft=of_ttft,
        lag_of_itl=of_itl,
        is_valid=not reasons,
        reasons=tuple(reasons),
    )
