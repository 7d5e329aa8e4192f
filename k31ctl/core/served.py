"""What requests got from a service: each one's times, and the statistics of all."""

from collections.abc import Iterable, Sequence
from math import fsum

from k31ctl.values import frozen


@frozen
class RequestRecord:
    """One served request; ``max_gap_s`` is its longest wait between two tokens in a row."""

    arrival_s: float
    first_token_s: float
    finish_s: float
    prompt_tokens: int
    output_tokens: int
    preemptions: int
    max_gap_s: float

    @property
    def ttft_s(self) -> float:
        """Time to first token, from arrival, with the time in the queue."""
        return self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> float:
        """Time from arrival to the last token."""
        return self.finish_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Mean time per output token after the first; None where there is no second."""
        if self.output_tokens == 1:
            return None
        return (self.finish_s - self.first_token_s) / (self.output_tokens - 1)

    @property
    def itl_s(self) -> float | None:
        """Longest latency between two tokens; None where there is no second."""
        return None if self.output_tokens == 1 else self.max_gap_s


METRICS = ("ttft", "tpot", "itl", "e2e")
"""Latencies of a request; each is a ``..._s`` of a record and of a summary."""


def metric_s(record: RequestRecord, metric: str) -> float | None:
    """Return one of ``METRICS`` of a record, in seconds."""
    value: float | None = getattr(record, f"{metric}_s")
    return value


@frozen
class Statistics:
    """Mean, exact percentiles and maximum of all values, in seconds.

    Percentiles are interpolated linearly between the two nearest ranks, as numpy's default and so
    the engines' own benchmarks: the value at rank p / 100 * (n - 1), counted from 0.
    """

    mean_s: float
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    max_s: float


STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")


def statistics(values_s: Iterable[float]) -> Statistics | None:
    """Statistics of values; None of none."""
    ordered = sorted(values_s)
    if not ordered:
        return None
    return Statistics(
        mean_s=fsum(ordered) / len(ordered),
        p50_s=percentile(ordered, 50),
        p90_s=percentile(ordered, 90),
        p95_s=percentile(ordered, 95),
        p99_s=percentile(ordered, 99),
        max_s=ordered[-1],
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Value at rank percent / 100 * (n - 1) of sorted values, interpolated linearly."""
    rank = percent / 100 * (len(ordered) - 1)
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


@frozen
class Clock:
    """What was counted while time passed, independently of the records.

    ``running_s`` and ``waiting_s`` are sums of requests times seconds. ``prefill_s`` is the time of
    steps that carried prompt tokens, ``busy_s`` that of all steps. ``kv_peak_units`` is the most
    that was held, of ``kv_total_units``.
    """

    duration_s: float
    running_s: float
    waiting_s: float
    busy_s: float
    prefill_s: float
    steps: int
    preemptions: int
    refused: int
    kv_peak_units: int
    kv_total_units: int


@frozen
class Summary:
    """A run in numbers; tpot and itl are None where no request makes a second token.

    ``total_tok_s`` counts prompts, cached tokens included, and outputs. ``busy_fraction`` is the
    share of time in steps, ``prefill_fraction`` the share of that in steps that carry prefill.
    """

    num_requests: int
    num_refused: int
    num_steps: int
    duration_s: float
    requests_per_s: float
    output_tok_s: float
    total_tok_s: float
    ttft: Statistics
    tpot: Statistics | None
    itl: Statistics | None
    e2e: Statistics
    mean_running: float
    mean_waiting: float
    busy_fraction: float
    prefill_fraction: float
    preemptions: int
    kv_peak_fraction: float

    def of(self, metric: str) -> Statistics | None:
        """Return the statistics of one of ``METRICS``."""
        found: Statistics | None = getattr(self, metric)
        return found


def summarised(records: Sequence[RequestRecord], clock: Clock) -> Summary:
    """Sum up a run of at least one request."""
    ttft = statistics(record.ttft_s for record in records)
    e2e = statistics(record.e2e_s for record in records)
    assert ttft is not None and e2e is not None
    output = sum(record.output_tokens for record in records)
    prompt = sum(record.prompt_tokens for record in records)
    T = clock.duration_s
    return Summary(
        num_requests=len(records),
        num_refused=clock.refused,
        num_steps=clock.steps,
        duration_s=T,
        requests_per_s=len(records) / T,
        output_tok_s=output / T,
        total_tok_s=(prompt + output) / T,
        ttft=ttft,
        tpot=statistics(t for record in records if (t := record.tpot_s) is not None),
        itl=statistics(t for record in records if (t := record.itl_s) is not None),
        e2e=e2e,
        mean_running=clock.running_s / T,
        mean_waiting=clock.waiting_s / T,
        busy_fraction=clock.busy_s / T,
        prefill_fraction=clock.prefill_s / clock.busy_s,
        preemptions=clock.preemptions,
        kv_peak_fraction=clock.kv_peak_units / clock.kv_total_units
        if clock.kv_total_units
        else 0.0,
    )
