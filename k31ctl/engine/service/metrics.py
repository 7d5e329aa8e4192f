"""Counts and times of the service, as Prometheus reads them."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from k31ctl.engine.service.generator import Load

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS_S: Final = (
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
)
_HISTOGRAMS: Final = {
    "time_to_first_token_seconds": "from the request to its first token",
    "inter_token_latency_seconds": "between two tokens of a request",
    "e2e_request_latency_seconds": "from the request to its last token",
}
_COUNTERS: Final = {
    "http_requests_total": "answers, by path and status",
    "request_finished_total": "generations, by how they ended",
    "prompt_tokens_total": "tokens of prompts",
    "generation_tokens_total": "tokens generated",
}

_WITHOUT_LABELS: Final = ("prompt_tokens_total", "generation_tokens_total")


class _Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS_S) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(_BOUNDS_S, value)] += 1
        self.sum += value


class Metrics:
    """What happened since the start."""

    def __init__(self) -> None:
        self._counters: Counter[tuple[str, str]] = Counter()
        self._counters.update({(name, ""): 0 for name in _WITHOUT_LABELS})
        self._histograms = {name: _Histogram() for name in _HISTOGRAMS}

    def count(self, name: str, number: int = 1, **labels: str | int) -> None:
        """Add to a counter."""
        shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
        self._counters[name, f"{{{shown}}}" if shown else ""] += number

    def observe(self, name: str, seconds: float) -> None:
        """Add one duration to a histogram."""
        self._histograms[name].add(seconds)

    def text(self, load: Load, *, num_requests: int) -> str:
        """Everything, in Prometheus' text format."""
        lines = [*_gauges(load, num_requests), *_experts(load)]
        lines += [*self._counter_lines(), *self._histogram_lines()]
        return "\n".join(lines) + "\n"

    def _counter_lines(self) -> Iterator[str]:
        for name, help_text in _COUNTERS.items():
            yield from _head(name, help_text, "counter")
            found = sorted(
                (labels, n) for (key, labels), n in self._counters.items() if key == name
            )
            yield from (f"k31ctl:{name}{labels} {number}" for labels, number in found)

    def _histogram_lines(self) -> Iterator[str]:
        for name, histogram in self._histograms.items():
            yield from _head(name, _HISTOGRAMS[name], "histogram")
            total = 0
            for bound, number in zip((*_BOUNDS_S, math.inf), histogram.counts, strict=True):
                total += number
                shown = "+Inf" if math.isinf(bound) else f"{bound:g}"
                yield f'k31ctl:{name}_bucket{{le="{shown}"}} {total}'
            yield f"k31ctl:{name}_sum {histogram.sum:.6f}"
            yield f"k31ctl:{name}_count {total}"


def _gauges(load: Load, num_requests: int) -> Iterator[str]:
    used = load.num_cached_tokens / load.num_cache_tokens if load.num_cache_tokens else 0.0
    gauges: tuple[tuple[str, str, float], ...] = (
        ("num_requests_open", "requests that are being answered or wait for it", num_requests),
        ("num_requests_running", "sequences that the model holds", load.num_running),
        ("num_requests_waiting", "sequences that wait for a slot", load.num_waiting),
        ("num_slots", "sequences that fit at a time", load.num_slots),
        ("kv_cached_tokens", "tokens whose cache is held", load.num_cached_tokens),
        ("kv_cache_tokens", "tokens whose cache fits", load.num_cache_tokens),
        ("kv_cache_usage_perc", "held over what fits, from 0 to 1", used),
    )
    for name, help_text, value in gauges:
        yield from _head(name, help_text, "gauge")
        yield f"k31ctl:{name} {value}"


def _experts(load: Load) -> Iterator[str]:
    """Where streamed experts were found; nothing where all are in memory."""
    if load.expert_uses is not None:
        yield from _head("experts_total", "streamed experts, by where they were found", "counter")
        for place, number in load.expert_uses.items():
            yield f'k31ctl:experts_total{{from="{place}"}} {number}'


def _head(name: str, help_text: str, kind: str) -> Iterator[str]:
    yield f"# HELP k31ctl:{name} {help_text}"
    yield f"# TYPE k31ctl:{name} {kind}"
