"""How long the very first request waits for its first token."""

from math import exp, sqrt

from k31ctl.core.estimate import Estimate
from k31ctl.core.performance import INTERVAL
from k31ctl.core.prediction import Case
from k31ctl.core.service import decode_latency_s, prefill_s
from k31ctl.core.speed_parameters import SpeedParameters, parameter
from k31ctl.core.step import StepModel, spread_of


def first_token(
    case: Case, step: StepModel, parameters: SpeedParameters, *, prompt_tokens: int
) -> Estimate:
    """Seconds of one prompt's prefill and one decode step on a replica that does nothing else."""
    first, _ = prefill_s(
        step,
        requests=1,
        prompt_tokens=prompt_tokens,
        past_tokens=0,
        chunk_tokens=case.chunk_tokens,
    )
    one = decode_latency_s(
        step, sequences=1, context_tokens=prompt_tokens, positions=case.positions
    )
    parts = step.prefill_parts(
        tokens=min(prompt_tokens, case.chunk_tokens), past_tokens=prompt_tokens / 2, sequences=1
    )
    model = parameter(parameters.model_spread, "ttft_s").value
    factor = exp(INTERVAL * sqrt(spread_of(parts) ** 2 + model**2))
    value = first + one
    return Estimate(value=value, low=value / factor, high=value * factor)
