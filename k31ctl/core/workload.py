"""What is asked of a service: lengths, and how requests arrive."""

from k31ctl.values import frozen


@frozen
class Workload:
    """Requests of one size; ``cached_fraction`` of each prompt is found in the prefix cache.

    Closed loop: ``concurrency`` requests are always in the system. Open loop: requests arrive at
    ``rate_per_s`` on average, whatever the service does. Exactly one of the two is given.
    """

    prompt_tokens: int
    output_tokens: int
    cached_fraction: float
    concurrency: int | None
    rate_per_s: float | None

    def __post_init__(self) -> None:
        """State what cannot be true of a workload."""
        if (self.concurrency is None) == (self.rate_per_s is None):
            raise ValueError("give either a concurrency or a rate")
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError("prompt_tokens and output_tokens must be at least 1")
        if not 0 <= self.cached_fraction < 1:
            raise ValueError("cached_fraction must be at least 0 and below 1")

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that prefill computes: all but the cached ones, at least one."""
        return max(1, round(self.prompt_tokens * (1 - self.cached_fraction)))


@frozen
class AskedWorkload:
    """What was asked of the load; None leaves a value to ``resolved_workload``."""

    prompt_tokens: int | None
    output_tokens: int | None
    cached_fraction: float
    concurrency: int | None
    rate_per_s: float | None
    accepted_tokens: float | None


NO_LOAD = AskedWorkload(
    prompt_tokens=None,
    output_tokens=None,
    cached_fraction=0.0,
    concurrency=None,
    rate_per_s=None,
    accepted_tokens=None,
)
USUAL_OUTPUT_TOKENS = 1024


def resolved_workload(asked: AskedWorkload, *, context_tokens: int, full_load: int) -> Workload:
    """A whole workload: what was asked, else one that fills a context and the cache.

    Without a prompt length the prompt is the context less the answer; without an answer's length
    the answer is 1,024 tokens, or half of a shorter context. Without a concurrency or a rate as
    many requests run as ``full_load`` says.
    """
    output = asked.output_tokens
    if output is None:
        output = max(1, min(USUAL_OUTPUT_TOKENS, context_tokens // 2))
    prompt = asked.prompt_tokens
    if prompt is None:
        prompt = max(1, context_tokens - output)
    concurrency = asked.concurrency
    if concurrency is None and asked.rate_per_s is None:
        concurrency = max(1, full_load)
    return Workload(
        prompt_tokens=prompt,
        output_tokens=output,
        cached_fraction=asked.cached_fraction,
        concurrency=concurrency,
        rate_per_s=asked.rate_per_s,
    )
