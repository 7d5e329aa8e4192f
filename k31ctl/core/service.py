"""From steps to a service: TTFT, TPOT and throughput of one size of request in a closed loop.

All requests of a closed loop have the same lengths, so they stay in step: their prompts are
prefilled one after another while decoding waits, then all decode together. That is what serving
benchmarks with a fixed concurrency measure, and where their long TTFT at a high concurrency
comes from.

Where a step carries prompts and decoding together, that is only how it begins. Prompts that do not
fit one chunk end one step after another, so do their answers, and so come the next prompts: from
the second round on a prompt hardly waits for others, and the others' chunks stall its decoding.
"""

from math import ceil
from typing import Protocol

from k31ctl.core.step import Replica
from k31ctl.values import frozen


class Steps(Protocol):
    """Times of steps on one replica, stage by stage, in seconds: see ``StepModel``."""

    @property
    def replica(self) -> Replica:
        """The ranks that work on a step together."""
        ...

    def decode_s(self, *, sequences: float, context_tokens: float, positions: int) -> list[float]:
        """Seconds of a decode step on each stage."""
        ...

    def prefill_s(self, *, tokens: float, past_tokens: float, sequences: float) -> list[float]:
        """Seconds of a chunk of prompt tokens on each stage."""
        ...


@frozen
class Service:
    """What one replica gives, in seconds and requests per second, at its running requests.

    ``first_s`` is when the first of a round of prompts is prefilled, ``prefill_s`` when all are.
    """

    running: float
    ttft_s: float
    tpot_s: float
    e2e_s: float
    decode_s: float
    first_s: float
    prefill_s: float
    queue_s: float
    period_s: float
    requests_per_s: float


def decode_latency_s(
    step: Steps, *, sequences: float, context_tokens: float, positions: int
) -> float:
    """Seconds between two steps of the same sequence, all stages of the pipeline passed.

    With p stages, p batches are under way; a batch waits for the slowest stage.
    """
    batches = min(step.replica.pp, max(1.0, sequences))
    times = step.decode_s(
        sequences=sequences / batches, context_tokens=context_tokens, positions=positions
    )
    return max(sum(times), batches * max(times))


def prefill_s(
    step: Steps, *, requests: float, prompt_tokens: float, past_tokens: float, chunk_tokens: int
) -> tuple[float, float]:
    """Seconds until the first of so many prompts, and until all of them, are prefilled.

    Prompts share chunks. Stages of a pipeline work on different chunks at once.
    """
    total = requests * prompt_tokens
    num_chunks = max(1.0, total / chunk_tokens)
    tokens = min(total, float(chunk_tokens))
    # A token sees all before it: half its prompt on average, and what was cached.
    mean_past = past_tokens + prompt_tokens / 2
    times = step.prefill_s(
        tokens=tokens, past_tokens=mean_past, sequences=max(1.0, tokens / prompt_tokens)
    )
    through, slowest = sum(times), max(times)
    first_chunks = max(1.0, prompt_tokens / chunk_tokens)
    first = through + (first_chunks - 1) * slowest
    return first, through + (num_chunks - 1) * slowest


def prefill_rate(
    step: Steps, *, requests: float, prompt_tokens: float, past_tokens: float, chunk_tokens: int
) -> float:
    """Prompt tokens per second of one attention group that always has so many prompts to prefill.

    Chunks are as large as spreads the prompts over all stages, and no larger than allowed. With k
    chunks under way the rate is k chunks per passage, or one per slowest stage if that is less.
    """
    waiting = requests * prompt_tokens
    tokens = min(float(chunk_tokens), waiting, max(prompt_tokens, waiting / step.replica.pp))
    times = step.prefill_s(
        tokens=tokens,
        past_tokens=past_tokens + prompt_tokens / 2,
        sequences=max(1.0, tokens / prompt_tokens),
    )
    chunks = waiting / tokens
    return tokens * min(chunks / sum(times), 1 / max(times))


def closed_loop(
    step: Steps,
    *,
    concurrency: float,
    most_running: float,
    prompt_tokens: int,
    uncached_tokens: int,
    output_tokens: int,
    positions: int,
    tokens_per_step: float,
    chunk_tokens: int,
    staggered_fraction: float,
) -> Service:
    """A closed loop of ``concurrency`` requests on one replica that runs ``most_running`` at most.

    Formula: period = prefill of all + decode steps; TTFT = half the prefill of all, on average, or
    for the ``staggered_fraction`` of requests the own chunks and the step before them; TPOT takes
    the rest, and is a decode step where there is only one token. Requests beyond what the cache
    holds wait whole periods.
    """
    n = min(concurrency, most_running)
    first, all_s = prefill_s(
        step,
        requests=n,
        prompt_tokens=uncached_tokens,
        past_tokens=prompt_tokens - uncached_tokens,
        chunk_tokens=chunk_tokens,
    )
    one = decode_latency_s(
        step,
        sequences=n,
        context_tokens=prompt_tokens + output_tokens / 2,
        positions=positions,
    )
    steps = max(0.0, (output_tokens - 1) / tokens_per_step)
    decode = steps * one
    period = all_s + decode
    mean_first = first + (all_s - first) / 2
    if staggered_fraction:
        chunks = uncached_tokens / chunk_tokens
        chunk_s = first / max(1.0, chunks)
        # Prompts follow one another: all but the first come while the one before is computed.
        own = chunk_s * ceil(chunks) + (chunk_s + one) * (1 - 1 / n)
        # With more chunks than steps every step carries one, and prompts queue for them.
        spread = min(all_s, max(own, all_s - steps * chunk_s))
        mean_first += staggered_fraction * (spread - mean_first)
    stalled = all_s - mean_first
    queue = (concurrency / n - 1) * period
    return Service(
        running=n,
        ttft_s=mean_first + queue,
        tpot_s=(decode + stalled) / (output_tokens - 1) if output_tokens > 1 else one,
        e2e_s=period + queue,
        decode_s=one,
        first_s=first,
        prefill_s=all_s,
        queue_s=queue,
        period_s=period,
        requests_per_s=n / period,
    )
