"""Which load comes next in the search for saturation, and why it ends."""

from collections.abc import Sequence
from typing import Final

from k31ctl.bench.result import StageResult

LEAST_GAIN: Final = 1.05
MOST_FAILED: Final = 0.01
MOST_CONCURRENCY: Final = 65_536
MOST_RATE: Final = 10_000
LEAST_KEPT: Final = 0.8  # the tail of answers after the last arrival is in the time as well


def why_enough(results: Sequence[StageResult], *, least_good_fraction: float) -> str | None:
    """Return why twice the users or the rate would be of no use, None where they might be.

    They are not where the client did not keep up, more than one request in a hundred failed, fewer
    than asked for kept the service level, or the last doubling gave less than 5 % more output.
    """
    last = results[-1]
    if not last.client.is_valid:
        return f"the client did not keep up at {last.name}"
    if last.errors > MOST_FAILED * last.requests:
        return f"{last.errors:,} of {last.requests:,} requests failed at {last.name}"
    if last.good_fraction is not None and last.good_fraction < least_good_fraction:
        return f"only {last.good_fraction:.1%} of the requests kept --slo at {last.name}"
    if len(results) > 1 and last.output_tok_s < LEAST_GAIN * results[-2].output_tok_s:
        gain = last.output_tok_s / results[-2].output_tok_s - 1
        return f"{last.name} gave {gain:+.1%} output over {results[-2].name}"
    return _why_not_more(last)


def _why_not_more(last: StageResult) -> str | None:
    if (last.concurrency or 0) * 2 > MOST_CONCURRENCY:
        return f"no more than {MOST_CONCURRENCY:,} users are tried"
    if (last.rate or 0) * 2 > MOST_RATE:
        return f"no more than {MOST_RATE:,} requests a second are tried"
    if last.rate and last.request_rate < LEAST_KEPT * last.rate:
        return f"only {last.request_rate:.4g} requests/s were answered at {last.name}"
    return None
