"""How an engine batches: whose tokens a step carries, who is admitted, what the cache holds."""

from enum import StrEnum
from typing import Protocol

from k31ctl.values import frozen


class StepCost(Protocol):
    """What the simulation asks a speed model."""

    def step_s(
        self,
        *,
        num_decoding: int,
        context_tokens: float,
        prefill_tokens: int,
        prefill_past_tokens: float,
    ) -> float:
        """Seconds of one engine step.

        ``num_decoding`` sequences of mean length ``context_tokens`` each make a token, and a chunk
        of ``prefill_tokens`` is computed whose tokens have ``prefill_past_tokens`` before them.
        """
        ...


class Policy(StrEnum):
    """What a step carries where prompts and decoding sequences both wait for one."""

    MIXED = "mixed"
    """All decoding sequences and prefill up to the budget: vLLM."""
    PREFILL_FIRST = "prefill-first"
    """Prefill alone; decoding goes on once no admitted prompt is left: SGLang."""


@frozen
class Batching:
    """The rules of an engine's scheduler.

    ``chunk_tokens``: the budget of a step (``max_num_batched_tokens``, ``chunked_prefill_size``),
    of which each decoding sequence takes ``budget_per_decode`` tokens first; 0 where the budget is
    prefill's alone.
    ``max_running``: sequences that run at once, by option or by state slots, the fewer.
    ``reserved_output_fraction``: the share of the output still to come for which a request needs
    room when it is admitted. 0 admits on current need and preempts later (vLLM); 1 never preempts.
    ``tokens_per_step``: tokens that a decoding sequence gains in one step, on average; 1 without
    speculation.
    """

    policy: Policy
    chunk_tokens: int
    budget_per_decode: int
    max_running: int
    reserved_output_fraction: float
    tokens_per_step: float

    def __post_init__(self) -> None:
        """State what cannot be true of a scheduler."""
        if self.chunk_tokens < 1 or self.max_running < 1 or self.budget_per_decode < 0:
            raise ValueError("chunk_tokens and max_running must be at least 1")
        if not 0 <= self.reserved_output_fraction <= 1:
            raise ValueError("reserved_output_fraction must be between 0 and 1")
        if not 1 <= self.tokens_per_step <= self.chunk_tokens:
            raise ValueError("tokens_per_step must be at least 1 and no more than a chunk")

    def prefill_budget(self, num_decoding: int) -> int:
        """Prompt tokens that a step can carry beside this many decoding sequences."""
        if self.policy is Policy.PREFILL_FIRST:
            return self.chunk_tokens
        return max(0, self.chunk_tokens - num_decoding * self.budget_per_decode)


@frozen
class KvBudget:
    """The engine's cache as units that requests hold: blocks, pages or bytes.

    Formula: units(L) = fixed_units + ceil(L / page_tokens) * units_per_page
    """

    total_units: int
    page_tokens: int
    units_per_page: int
    fixed_units: int

    def __post_init__(self) -> None:
        """State what cannot be true of a cache."""
        if self.page_tokens < 1 or self.units_per_page < 0 or self.fixed_units < 0:
            raise ValueError("page_tokens must be at least 1 and no unit may be negative")

    def units(self, context_tokens: int) -> int:
        """Units that a request of this length holds."""
        return self.fixed_units - (-context_tokens // self.page_tokens) * self.units_per_page

    def units_at_most(self, *, num_requests: int, context_tokens: float) -> float:
        """No fewer units than these requests hold, given the sum of their lengths."""
        per_page = self.units_per_page
        return (
            num_requests * (self.fixed_units + per_page)
            + context_tokens * per_page / self.page_tokens
        )
