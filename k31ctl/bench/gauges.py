"""What a server says of the moment: requests that run and wait, and how full its cache is.

Names are those of vLLM 0.33 and SGLang 0.5.23; TokenSpeed 0.1.1 has SGLang's under its own prefix.
"""

from collections.abc import Sequence
from typing import Final

from k31ctl.bench.prometheus import ENGINES, parse_metrics
from k31ctl.values import frozen

_RUNNING: Final = ("num_requests_running", "num_running_reqs")
_WAITING: Final = ("num_requests_waiting", "num_queue_reqs")
_CACHE: Final = ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage")
_WANTED: Final = tuple(
    prefix + name for prefix in ENGINES.values() for name in (*_RUNNING, *_WAITING, *_CACHE)
)


@frozen
class Sample:
    """One look at the server; ``at_s`` is from the start of the stage, None is what is not told."""

    at_s: float
    running: float | None
    waiting: float | None
    cache_fraction: float | None


@frozen
class Gauges:
    """All looks of a stage; ``cache`` is the fraction of the KV cache in use."""

    num_samples: int
    running_mean: float | None
    waiting_mean: float | None
    waiting_max: float | None
    cache_mean: float | None
    cache_max: float | None


def read_sample(body: bytes, *, at_s: float) -> Sample | None:
    """Return what a text of metrics tells; None where it is of no known engine.

    Requests are added up over engines; of their caches the fullest counts. Lines of other names
    are passed over unread, since this runs beside the load.
    """
    lines = [
        line
        for line in body.decode("utf-8", "replace").split("\n")
        if line.startswith(_WANTED) and not line.startswith("#")
    ]
    counts = parse_metrics("\n".join(lines))
    if not counts:
        return None
    fullest = [value for line in lines for value in _cache(line)]
    return Sample(
        at_s=at_s,
        running=_named(counts, _RUNNING),
        waiting=_named(counts, _WAITING),
        cache_fraction=max(fullest, default=None),
    )


def summed_up(samples: Sequence[Sample]) -> Gauges | None:
    """Return means and maxima over looks; None of none."""
    if not samples:
        return None
    running = [s.running for s in samples if s.running is not None]
    waiting = [s.waiting for s in samples if s.waiting is not None]
    cache = [s.cache_fraction for s in samples if s.cache_fraction is not None]
    return Gauges(
        num_samples=len(samples),
        running_mean=_mean(running),
        waiting_mean=_mean(waiting),
        waiting_max=max(waiting, default=None),
        cache_mean=_mean(cache),
        cache_max=max(cache, default=None),
    )


def _cache(line: str) -> list[float]:
    found = parse_metrics(line)
    return [value for name, value in found.items() if name.partition(":")[2] in _CACHE]


def _named(counts: dict[str, float], names: Sequence[str]) -> float | None:
    for prefix in ENGINES.values():
        for name in names:
            if prefix + name in counts:
                return counts[prefix + name]
    return None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
