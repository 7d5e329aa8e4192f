"""Step repeat: the same model and the same tokens give the same bits, alone and again."""

import torch
from torch import Tensor

from k31ctl.core.ladder import measure
from k31ctl.engine.generate import Generation, Request
from k31ctl.engine.model import Model, Segment
from k31ctl.engine.sample import Sampling
from k31ctl.smoke.block_steps import normal
from k31ctl.smoke.identity_step import error_counters
from k31ctl.smoke.layer_steps import advanced
from k31ctl.smoke.reference import Stream
from k31ctl.smoke.session import Found, Session

_NUM_TOKENS = 24
_NUM_SAID = 16


def repeat(session: Session) -> Found:
    """Twice the whole way, and twice two requests together; counters of the GPU stay still."""
    model, choice = session.model(session.layers)
    counters = error_counters(session.host()) if session.device.type == "cuda" else ()
    if choice.has_ends:
        first, second = (_logits(model) for _ in range(2))
        one, again = _said(model), _said(model)
        differ = sum(a != b for a, b in zip(one, again, strict=True))
        counters = (measure("tokens that differ", differ, at_most=0), *counters)
        detail = "logits of a prompt and tokens of two requests, twice"
    else:
        first, second = (_stream(session, model) for _ in range(2))
        detail = "the last layer's output, twice"
    measures = [
        measure("numbers that are not finite", _num_not_finite(first, second), at_most=0),
        measure("numbers that differ", _num_other_bits(first, second), at_most=0),
        *counters,
    ]
    return Found(detail=detail, measures=tuple(measures))


def _num_other_bits(first: Tensor, second: Tensor) -> int:
    """How many numbers do not have the same bits; by value, NaN would differ from itself."""
    one, other = (x.contiguous().view(torch.uint8) for x in (first, second))
    is_other = (one != other).unflatten(-1, (-1, first.dtype.itemsize))
    return int(is_other.any(-1).sum())


def _num_not_finite(first: Tensor, second: Tensor) -> int:
    """How many numbers are not finite in either."""
    return int((~(first.isfinite() & second.isfinite())).sum())


def _tokens(model: Model, *, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randint(0, model.config.vocab_size, (_NUM_TOKENS,), generator=random)


def _logits(model: Model) -> Tensor:
    cache = model.cache(num_slots=1, num_tokens=_NUM_TOKENS)
    slot = cache.open(_NUM_TOKENS)
    assert slot is not None
    segments = [Segment(slot=slot, start=0, length=_NUM_TOKENS)]
    return model(_tokens(model, seed=1), segments, cache, every=True)


def _stream(session: Session, model: Model) -> Tensor:
    number = max(model.layers)
    D, block = session.config.hidden_size, session.config.residual_block
    N = -(-number // block) if block else 0
    rows = normal(_NUM_TOKENS, N + 1, D, seed=1, at=session.device).double()
    return advanced(model, number, Stream(live=rows[:, 0], snapshots=rows[:, 1:]), (_NUM_TOKENS,))


def _said(model: Model) -> list[int]:
    """Greedy and drawn tokens of two requests that run together."""
    generation = Generation(model, num_slots=2, num_tokens=4 * (_NUM_TOKENS + _NUM_SAID))
    for number, temperature in ((1, 0.0), (2, 1.0)):
        generation.submit(
            Request(
                id=str(number),
                tokens=tuple(_tokens(model, seed=number).tolist()),
                max_tokens=_NUM_SAID,
                sampling=Sampling(temperature=temperature, seed=number),
            )
        )
    return [said.token for said in generation.run()]
