"""What a server counted of itself while a stage ran, from its Prometheus metrics before and after.

Counters and the sums and counts of histograms are exact over the stage, as long as nobody else
uses the server; gauges, such as how full the cache is, are of a moment and left out. Names are
those of vLLM 0.33, SGLang 0.5.23, TokenSpeed 0.1.1 and its gateway.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from k31ctl.bench.prometheus import ENGINES
from k31ctl.bench.result import ServerMetrics

_GATEWAY: Final = "smg_"
_TTFT: Final = ("time_to_first_token_seconds", "router_ttft_seconds")
_ITL: Final = ("inter_token_latency_seconds", "router_tpot_seconds")
_E2E: Final = ("e2e_request_latency_seconds",)
_QUEUE: Final = ("request_queue_time_seconds", "queue_time_seconds")
_PREEMPTIONS: Final = ("num_preemptions", "num_retracted_requests")


def answers(metrics: Mapping[str, float]) -> bool:
    """Whether metrics are of an engine that is known here."""
    return _engine(metrics)[0] is not None


def between(before: Mapping[str, float], after: Mapping[str, float]) -> ServerMetrics | None:
    """Return what was counted between two readings, None where they are of no known engine.

    A counter that went down belongs to a server that began anew, and is left out.
    """
    engine, prefix = _engine(after)
    if engine is None:
        return None
    grown = {
        name.removeprefix(prefix): value - before.get(name, 0.0)
        for name, value in after.items()
        if name.startswith(prefix) and value >= before.get(name, 0.0)
    }
    return ServerMetrics(
        engine=engine,
        ttft_mean_s=_mean(grown, _TTFT),
        itl_mean_s=_mean(grown, _ITL),
        e2e_mean_s=_mean(grown, _E2E),
        queue_mean_s=_mean(grown, _QUEUE),
        preemptions=_counter(grown, _PREEMPTIONS),
        prefix_hit_fraction=_share(grown, "prefix_cache_hits", "prefix_cache_queries"),
        accepted_per_draft=_share(
            grown, "spec_decode_num_accepted_tokens", "spec_decode_num_drafts"
        ),
    )


def _engine(metrics: Mapping[str, float]) -> tuple[str | None, str]:
    for engine, prefix in (*ENGINES.items(), ("smg", _GATEWAY)):
        if any(name.startswith(prefix) for name in metrics):
            return engine, prefix
    return None, ""


def _counter(grown: Mapping[str, float], names: Sequence[str]) -> float | None:
    for name in names:
        for spelled in (f"{name}_total", name):
            if spelled in grown:
                return grown[spelled]
    return None


def _mean(grown: Mapping[str, float], names: Sequence[str]) -> float | None:
    for name in names:
        total, count = grown.get(f"{name}_sum"), grown.get(f"{name}_count")
        if total is not None and count:
            return total / count
    return None


def _share(grown: Mapping[str, float], part: str, whole: str) -> float | None:
    above, below = _counter(grown, (part,)), _counter(grown, (whole,))
    return above / below if above is not None and below else None
