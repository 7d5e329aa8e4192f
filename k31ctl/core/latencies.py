"""Statistics of the latencies of a closed loop, in closed form, and limits held against them.

In a round of n requests the prompts are done one after another, evenly spaced from the first at
``first_s`` to the last at ``prefill_s``; then all decode together and end together. So the request
of share p has waited p of that span more for its first token, and another one of share p has been
stalled for p of it before it decodes: percentiles are straight lines, as linear interpolation
between ranks makes them.
"""

from k31ctl.core.service import Service
from k31ctl.core.slo import Limit, Slo

SHARES = {"mean": 0.5, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}


def latency_s(service: Service, limit: Limit, *, output_tokens: int) -> float | None:
    """Seconds of the latency that a limit is about; None where no request has it.

    Symbols: f first prompt done, a all done, d one decode step, D all decode steps, o output
    tokens, q wait in the queue, p the share.
    Formula: TTFT f + p (a - f) + q; TPOT (D + p (a - f)) / (o - 1); longest ITL d + p (a - f);
    end to end a + D + q.
    """
    span = SHARES[limit.statistic] * (service.prefill_s - service.first_s)
    match limit.metric:
        case "ttft":
            return service.first_s + span + service.queue_s
        case "e2e":
            return service.e2e_s
        case "tpot":
            decode = service.period_s - service.prefill_s
            return (decode + span) / (output_tokens - 1) if output_tokens > 1 else None
        case "itl":
            return service.decode_s + span if output_tokens > 1 else None
    raise ValueError(f"no latency is called {limit.metric}")


def excess(service: Service, slo: Slo, *, output_tokens: int) -> float:
    """The worst limit's latency over what it may be: all limits are kept where it is at most 1."""
    worst = 0.0
    for limit in slo.limits:
        found = latency_s(service, limit, output_tokens=output_tokens)
        if found is not None:
            worst = max(worst, found / limit.at_most_s)
    return worst
