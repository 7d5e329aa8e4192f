"""Driving a model in tests: whole prompts, pieces, single tokens, greedy continuations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from k31ctl.engine.checkpoint import load_model
from k31ctl.engine.model import Model, Segment
from k31ctl.engine.tensors import Target

CPU = torch.device("cpu")
F32 = Target(dtype=torch.float32, device=CPU)
ROOM = 256


def load(folder: Path, **options: Any) -> Model:
    return load_model(folder, F32, **options)


def prompt(length: int, *, seed: int = 3, most: int = 500) -> torch.Tensor:
    return torch.randint(0, most, (length,), generator=torch.Generator().manual_seed(seed))


def in_pieces(model: Model, tokens: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Logits behind every token of one sequence that is read in pieces of these lengths."""
    cache, out, start = model.cache(num_slots=1, num_tokens=ROOM), [], 0
    slot = cache.open(ROOM)
    assert slot is not None
    for length in lengths:
        segment = Segment(slot=slot, start=start, length=length)
        out.append(model(tokens[start : start + length], [segment], cache, every=True))
        start += length
    assert start == len(tokens)
    return torch.cat(out)


def greedy(model: Model, tokens: torch.Tensor, steps: int) -> list[int]:
    """The most likely tokens behind a prompt."""
    cache = model.cache(num_slots=1, num_tokens=ROOM)
    slot, start, chosen = cache.open(ROOM), 0, []
    assert slot is not None
    for _ in range(steps):
        segment = Segment(slot=slot, start=start, length=len(tokens))
        chosen.append(int(model(tokens, [segment], cache)[0].argmax()))
        start += len(tokens)
        tokens = torch.tensor(chosen[-1:])
    return chosen


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference over the largest value."""
    return float((found - expected).abs().max() / expected.abs().max())
