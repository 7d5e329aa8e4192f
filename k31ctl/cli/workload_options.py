"""The options that say what load a deployment serves."""

from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from k31ctl.cli.options import Lengths
from k31ctl.core.workload import USUAL_OUTPUT_TOKENS, AskedWorkload
from k31ctl.errors import UsageError

MOST_ACCEPTED = 65.0

CachedFractionOpt = Annotated[
    float,
    typer.Option("--cached-fraction", help="Share of a prompt found in the prefix cache."),
]
ConcurrencyOpt = Annotated[
    int | None,
    typer.Option("--concurrency", min=1, max=1_000_000, help="Requests always in the system."),
]
AcceptedTokensOpt = Annotated[
    float | None,
    typer.Option("--accepted-tokens", help="Tokens that a step with a draft yields on average."),
]
CalibrationOpt = Annotated[
    Path | None,
    typer.Option("--calibration", metavar="FILE", help="Speed parameters to use over ours."),
]
BreakdownOpt = Annotated[
    bool, typer.Option("--breakdown", help="Show every part of a step, and its physical limit.")
]


def asked_workload(
    *,
    prompt_tokens: int | None,
    output_tokens: int | None,
    cached_fraction: float,
    concurrency: int | None,
    accepted_tokens: float | None,
) -> AskedWorkload:
    """The load that was asked for; raises UsageError where a number cannot be."""
    for name, count in (("--prompt-tokens", prompt_tokens), ("--output-tokens", output_tokens)):
        if count is not None and count < 1:
            raise UsageError(
                f"{count} tokens are none", where=name, remedy=f"give {name} at least 1"
            )
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
    return AskedWorkload(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        cached_fraction=cached_fraction,
        concurrency=concurrency,
        rate_per_s=None,
        accepted_tokens=accepted_tokens,
    )


def contexts_of(asked: AskedWorkload) -> Lengths | None:
    """The context that a request of this load reaches, where its prompt is given."""
    if asked.prompt_tokens is None:
        return None
    return Lengths((asked.prompt_tokens + (asked.output_tokens or USUAL_OUTPUT_TOKENS),))
