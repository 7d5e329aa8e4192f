"""One token out of logits: the same logits, settings and seed give the same token.

Everything runs in float64 on the CPU, so that neither the batch nor the device has a say.
"""

import sys
from typing import Final

import torch
from torch import Tensor

from k31ctl.engine.ranking import in_order
from k31ctl.values import frozen

# Below the smallest normal number, quotients overflow or depend on the processor's settings.
_LEAST_TEMPERATURE: Final = sys.float_info.min


@frozen
class Sampling:
    """How a request draws: temperature 0 takes the likeliest; 0 and 1 switch the limits off.

    A temperature that float64 holds only with less than its full precision counts as 0.
    """

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0


@frozen
class Likelihood:
    """Logarithms of probabilities before any sampling setting: of a token, and the largest."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class Sampler:
    """The draws of one request."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = torch.Generator().manual_seed(sampling.seed)

    def choose(self, logits_V: Tensor) -> int:
        """The next token; raises FloatingPointError where a logit is no finite number."""
        logits = logits_V.detach().to("cpu", torch.float64)
        if not logits.isfinite().all():
            raise FloatingPointError("its logits are not all finite numbers")
        if self._sampling.temperature < _LEAST_TEMPERATURE:
            return int(logits.argmax())
        p, token = kept(logits, self._sampling)
        # The first of exponential waits, one for each token of the vocabulary: logits that differ
        # by rounding, as a batch's do, draw the same, whatever order near-equal tokens are in.
        wait_V = -torch.rand(len(logits), generator=self._random, dtype=torch.float64).log()
        return int(token[(p / wait_V[token]).argmax()])


def kept(logits_V: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Probabilities of the tokens that may be drawn, largest first, and their ids.

    The temperature first, then the best ``top_k``, of those the fewest that hold ``top_p``, of
    those all that reach ``min_p`` times the largest. At least one is left.
    """
    if sampling.top_k:
        order = in_order(logits_V[None], min(sampling.top_k, len(logits_V)))[0]
    else:
        order = logits_V.argsort(descending=True, stable=True)
    # The largest becomes 0 first, so that no quotient is above it and none overflows upwards.
    p = ((logits_V - logits_V.max()) / sampling.temperature).softmax(-1)[order]
    if sampling.top_k:
        p = p / p.sum()
    if sampling.top_p < 1:
        p = p[: max(1, int((p.cumsum(0) - p < sampling.top_p).sum()))]
    if sampling.min_p > 0:
        p = p[p >= sampling.min_p * p[0]]
    return p, order[: len(p)]


def likelihood(logits_V: Tensor, token: int, *, num_top: int) -> Likelihood:
    """How likely a token was, and the ``num_top`` likeliest, largest first."""
    logprobs = logits_V.detach().to("cpu", torch.float64).log_softmax(-1)
    best = in_order(logprobs[None], min(num_top, len(logprobs)))[0].tolist() if num_top else []
    top = tuple((each, float(logprobs[each])) for each in best)
    return Likelihood(token=token, logprob=float(logprobs[token]), top=top)
