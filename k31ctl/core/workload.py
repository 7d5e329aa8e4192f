"""What is asked of a service: lengths, and how requests arrive."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
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
