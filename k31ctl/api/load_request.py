"""The load that a plan is asked about, and how it is played out."""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Final

from k31ctl.api.bounds import LEAST_RATE, MOST_ACCEPTED, MOST_RATE
from k31ctl.api.given import checked_range
from k31ctl.core.workload import USUAL_OUTPUT_TOKENS, AskedWorkload
from k31ctl.errors import UsageError

if TYPE_CHECKING:
    from k31ctl.core.simulation_request import SimulationRequest

_CONTEXT: Final = 128 << 10


def asked_workload(
    *,
    prompt_tokens: int | None,
    output_tokens: int | None,
    cached_fraction: float,
    concurrency: int | None,
    rate: float | None,
    batch: Sequence[int] | None,
    accepted_tokens: float | None,
) -> AskedWorkload:
    """The load that was asked for; raises UsageError where a number cannot be."""
    for name, count in (("--prompt-tokens", prompt_tokens), ("--output-tokens", output_tokens)):
        if count is not None and count < 1:
            raise UsageError(
                f"{count} tokens are none", where=name, remedy=f"give {name} at least 1"
            )
    checked_range("--concurrency", concurrency, least=1, most=1_000_000)
    if not 0 <= cached_fraction < 1:
        raise UsageError(
            f"{cached_fraction} is not a fraction of at least 0 and below 1",
            where="--cached-fraction",
            remedy="give a value such as 0.8: the last token of a prompt is never cached",
        )
    if accepted_tokens is not None and not (
        isfinite(accepted_tokens) and 1 <= accepted_tokens <= MOST_ACCEPTED
    ):
        raise UsageError(
            f"{accepted_tokens} is not between 1 and {MOST_ACCEPTED:g}",
            where="--accepted-tokens",
            remedy="count the target's own token: give 1 where nothing drafted is kept",
        )
    if rate is not None and concurrency is not None:
        raise UsageError(
            "a rate of arrivals and a number of requests at once are two different loads",
            where="--rate, --concurrency",
            remedy="leave one of them out",
        )
    if rate is not None and not LEAST_RATE <= rate <= MOST_RATE:
        raise UsageError(
            f"{rate:g} is not a rate from {LEAST_RATE:f} to {MOST_RATE:,.0f}",
            where="--rate",
            remedy="give the requests that arrive in a second, such as 0.5",
        )
    return AskedWorkload(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        cached_fraction=cached_fraction,
        concurrency=concurrency or (batch[0] if batch and rate is None else None),
        rate_per_s=rate,
        accepted_tokens=accepted_tokens,
    )


def contexts_of(asked: AskedWorkload, *, max_model_len: int | None) -> tuple[int, ...]:
    """The context that a request of this load reaches.

    Where its prompt is open that is the usual one, or all that is served where that is less.
    """
    if asked.prompt_tokens is None:
        return (min(_CONTEXT, max_model_len or _CONTEXT),)
    return (asked.prompt_tokens + (asked.output_tokens or USUAL_OUTPUT_TOKENS),)


def simulation_request(
    asked: AskedWorkload, *, trace: Path | None, slo: str | None, simulate: bool, seed: int
) -> "SimulationRequest | None":
    """What to play out: a trace, a rate, service levels, or where it was asked; else None."""
    if not (simulate or trace or slo is not None or asked.rate_per_s is not None):
        return None
    from random import Random

    from k31ctl.catalog.trace import read_trace
    from k31ctl.core.simulation_request import SimulationRequest
    from k31ctl.core.slo import parse_slo

    if trace is not None and (asked.rate_per_s is not None or asked.concurrency is not None):
        raise UsageError(
            "a trace says itself when its requests arrive",
            where="--trace",
            remedy="leave --rate and --concurrency out",
        )
    read = read_trace(trace) if trace is not None else None
    return SimulationRequest(
        trace=read.load if read else None,
        trace_notes=read.notes if read else (),
        slo=parse_slo(slo) if slo is not None else None,
        random=Random(seed),
        seed=seed,
    )
