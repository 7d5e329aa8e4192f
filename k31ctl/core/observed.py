"""What one stage of a benchmark measured, in the words of the speed model."""

from collections.abc import Mapping

from k31ctl.core.workload import Workload
from k31ctl.values import frozen

TTFT, ITL, TPOT, E2E = "ttft_s", "itl_s", "tpot_s", "e2e_s"
OUTPUT, TOTAL = "output_tok_s", "total_tok_s"
QUANTITIES = (TTFT, ITL, TPOT, E2E, OUTPUT, TOTAL)
MOST_FAILED = 0.01


@frozen
class Observed:
    """One load and what came of it; lengths are means over the answered requests.

    ``measured`` is keyed by ``QUANTITIES``: mean TTFT, TPOT and time end to end, the median gap
    per token (what a decode step takes, whatever prefill did between), output and total tokens per
    second of the whole deployment. ``queue_s`` is how long requests waited by the server's word.
    ``why_not`` says why nothing can be learnt from it.
    """

    run: str
    name: str
    concurrency: int | None
    rate_per_s: float | None
    prompt_tokens: int
    output_tokens: int
    cached_fraction: float
    completed: int
    measured: Mapping[str, float]
    queue_s: float | None
    why_not: str

    @property
    def num_rounds(self) -> float:
        """Requests of each user of a closed loop, on average."""
        return max(1.0, self.completed / (self.concurrency or 1))

    @property
    def load(self) -> Workload:
        """The load as the model is asked for it."""
        return Workload(
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            cached_fraction=self.cached_fraction,
            concurrency=self.concurrency,
            rate_per_s=self.rate_per_s,
        )


@frozen
class Sums:
    """Tokens of all answered requests; ``cached`` is None where the server does not tell."""

    prompt: int
    cached: int | None
    output: int


def observed(
    *,
    run: str,
    name: str,
    concurrency: int | None,
    rate_per_s: float | None,
    requests: int,
    completed: int,
    tokens: Sums,
    measured: Mapping[str, float | None],
    queue_s: float | None,
    is_valid: bool,
) -> Observed:
    """One stage from its sums over the answered requests, of which there may be none."""
    answered = max(completed, 1)
    why_not = ""
    if not completed:
        why_not = "no request was answered"
    elif not is_valid:
        why_not = "the client did not keep up"
    elif requests - completed > MOST_FAILED * requests:
        why_not = f"{(requests - completed) / requests:.1%} of the requests failed"
    elif concurrency is None and rate_per_s is None:
        why_not = "a trace has no one load that a plan can be asked for"
    prompt = max(1, round(tokens.prompt / answered))
    cached = (tokens.cached or 0) / max(tokens.prompt, 1)
    return Observed(
        run=run,
        name=name,
        concurrency=concurrency,
        rate_per_s=rate_per_s,
        prompt_tokens=prompt,
        output_tokens=max(1, round(tokens.output / answered)),
        cached_fraction=min(cached, 1 - 1 / (prompt + 1)),
        completed=completed,
        measured={k: v for k, v in measured.items() if v is not None and v > 0},
        queue_s=queue_s,
        why_not=why_not,
    )
