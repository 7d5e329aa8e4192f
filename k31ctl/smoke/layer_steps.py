"""Steps layers and all: the checkpoint's layers, each held against float64 on the same input.

Layers are never chained for a comparison, since Attention Residuals amplify rounding.
T tokens, D width, N snapshots, V vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from k31ctl.core.expert_budget import expert_uses_text
from k31ctl.core.ladder import Measure, measure
from k31ctl.engine.model import Model, Segment
from k31ctl.engine.residual import Stream as EngineStream
from k31ctl.engine.start import Choice
from k31ctl.engine.tokenizer import VOCABULARY_FILE, load_tokenizer
from k31ctl.errors import InputError
from k31ctl.smoke import reference
from k31ctl.smoke.block_steps import normal
from k31ctl.smoke.reference import Stream
from k31ctl.smoke.session import Found, Session, Skipped
from k31ctl.units import counted

_NUM_TOKENS: Final = 24
_PIECES: Final = (13, 8, 1, 1, 1)
_FIRST: Final = 4
_EXACT_ERROR: Final = 5e-5
_ROUNDED_ERROR: Final = 3e-2
# A choice of experts or of tokens that is closer than this may be decided otherwise by rounding.
_EXACT_MARGIN: Final = 1e-5
_ROUNDED_MARGIN: Final = 2e-2
_HEAD_ROWS: Final = 8192
_MEMORY_SLACK: Final = 0.05
_PROMPTS: Final = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return",
    "Water boils at a temperature of",
)


def layers(session: Session) -> Found:
    """Layers of the checkpoint on an injected stream: alone, in pieces, and against a record."""
    numbers = session.layers or range(min(_FIRST, session.config.num_layers))
    model, choice = session.model(numbers)
    truth = _truth(session.task.truth)
    measures, notes, near = [], [*choice.reasons[-1:]], 0
    kept: dict[str, Tensor] = {}
    for number in numbers:
        stream = _injected(session, number, truth)
        want, margin = _wanted(session, stream, number)
        clear = margin >= (_EXACT_MARGIN if session.is_exact else _ROUNDED_MARGIN)
        near += int((~clear).sum())
        whole = advanced(model, number, stream, (len(stream.live),))
        pieces = advanced(model, number, stream, _PIECES)
        base = _base(session, stream, number)
        measures += [
            _error(session, f"layer {number}", whole, want.live, base, clear),
            _error(session, f"layer {number} in pieces", pieces, want.live, base, clear),
        ]
        if (recorded := truth.get(f"{number}.out")) is not None:
            recorded = recorded.to(session.device).double()
            measures.append(
                _error(session, f"layer {number} as recorded", whole, recorded, base, clear)
            )
        kept |= {f"{number}.live": stream.live, f"{number}.snapshots": stream.snapshots}
        kept[f"{number}.out"] = want.live
    if near:
        notes.append(f"{counted(near, 'choice')} too near to call, left out")
    if session.task.record is not None:
        _record(Path(session.task.record), kept)
        notes.append(f"recorded in {session.task.record}")
    detail = f"layers {numbers.start} to {numbers.stop - 1} agree with float64"
    return Found(detail=detail, measures=tuple(measures), notes=tuple(notes))


def advanced(model: Model, number: int, stream: Stream, pieces: Sequence[int]) -> Tensor:
    """What a layer of the engine makes of a stream that comes in pieces, [T, D]."""
    cache = model.cache(num_slots=1, num_tokens=len(stream.live))
    slot = cache.open(len(stream.live))
    assert slot is not None
    out, begin, dtype = [], 0, model.target.dtype
    with torch.inference_mode():
        for length in pieces:
            part = slice(begin, begin + length)
            live, snapshots = stream.live[part].to(dtype), stream.snapshots[part].to(dtype)
            own = model.inject(live, snapshots)
            segment = Segment(slot=slot, start=begin, length=length)
            model.layers[number](own, [segment], cache, number, model.config.norm_eps)
            assert own.live_TD is not None
            out.append(own.live_TD.to(model.target.device))
            begin += length
    return torch.cat(out)


def all_layers(session: Session) -> Found:
    """From tokens to logits, each layer against float64 on the engine's own stream."""
    if session.layers is not None:
        first, last = session.layers.start, session.layers.stop - 1
        raise Skipped(f"only layers {first} to {last} are tried")
    model, choice = session.model(None)
    prompts = _prompts(session)
    worst, near, clear_tokens = 0.0, 0, 0
    tokens = torch.tensor(prompts[0])
    cache = model.cache(num_slots=1, num_tokens=len(tokens))
    slot = cache.open(len(tokens))
    assert slot is not None
    segments = [Segment(slot=slot, start=0, length=len(tokens))]
    worst_layer = 0
    with torch.inference_mode():
        own = model.start(tokens)
        for number, each in model.layers.items():
            before = _exact(session, own, slice(None))
            want, margin = _wanted(session, before, number)
            each(own, segments, cache, number, model.config.norm_eps)
            clear = margin >= (_EXACT_MARGIN if session.is_exact else _ROUNDED_MARGIN)
            near, clear_tokens = near + int((~clear).sum()), clear_tokens + int(clear.sum())
            base = _base(session, before, number)
            assert own.live_TD is not None
            found = own.live_TD.to(session.device)
            error = _error(session, "", found, want.live, base, clear).value
            if error is None or error > worst:
                worst, worst_layer = float("nan") if error is None else error, number
            if error is None:
                break
    limit = _EXACT_ERROR if session.is_exact else _ROUNDED_ERROR
    measures = [measure(f"worst layer ({worst_layer})", worst, at_most=limit)]
    measures += [*_heads(session, model, prompts), *_memory(session, model, choice)]
    notes = [*model.paths(), *choice.reasons[-1:]]
    if model.store is not None:
        notes.append(expert_uses_text(model.store.uses()))
    if near:
        notes.append(f"{counted(near, 'choice')} of {near + clear_tokens} too near to call")
    detail = f"{counted(len(model.layers), 'layer')}, {len(tokens)} tokens, three prompts"
    return Found(detail=detail, measures=tuple(measures), notes=tuple(notes))


def _heads(session: Session, model: Model, prompts: Sequence[Sequence[int]]) -> list[Measure]:
    """Logits and the five likeliest tokens behind each prompt, against a float64 head."""
    worst, agreed = 0.0, 0
    for prompt in prompts:
        cache = model.cache(num_slots=1, num_tokens=len(prompt))
        slot = cache.open(len(prompt))
        assert slot is not None
        segments = [Segment(slot=slot, start=0, length=len(prompt))]
        with torch.inference_mode():
            own = model.start(torch.tensor(prompt))
            model.advance(own, segments, cache)
            end = _exact(session, own, slice(-1, None))
            said = model.finish(own, slice(-1, None))[0].double().to(session.device)
        want = _logits(session, end)
        error = float((said - want).abs().max() / want.abs().max())
        worst = error if not error <= worst else worst
        agreed += len(set(said.topk(5).indices.tolist()) & set(want.topk(5).indices.tolist()))
    limit = _EXACT_ERROR if session.is_exact else _ROUNDED_ERROR
    least = 5 * len(prompts) if session.is_exact else None
    return [
        measure("logits, error", worst, at_most=limit),
        measure("of 15 likeliest tokens, the same", agreed, at_least=least),
    ]


def _exact(session: Session, own: EngineStream, rows: slice) -> Stream:
    """Some tokens of the engine's stream in float64, on the device of the reference."""
    assert own.live_TD is not None
    parts = (part[rows].to(session.device).double() for part in (own.live_TD, own.snapshots))
    return Stream(live=next(parts), snapshots=next(parts))


def _logits(session: Session, end: Stream) -> Tensor:
    """The head in float64, some rows of the vocabulary at a time, [V]."""
    read, _ = session.reading("")
    config, h = session.config, end.live
    if config.residual_block:
        rows = torch.cat((end.snapshots, end.live[:, None]), dim=1)
        norm = read("model.output_attn_res_norm.weight")
        proj = read("model.output_attn_res_proj.weight")
        h = reference.mixed(rows, norm, proj, config.norm_eps)
    h = reference.rms(h, read("model.norm.weight"), config.norm_eps)
    name = "model.embed_tokens.weight" if config.tied_embeddings else "lm_head.weight"
    return torch.cat([h @ part.double().T for part in read(name).split(_HEAD_ROWS)], dim=1)[0]


def _memory(session: Session, model: Model, choice: Choice) -> list[Measure]:
    """What each GPU holds over what was planned of weights; a CPU's is not told apart."""
    if session.device.type == "cpu":
        return []
    measures = []
    for device in dict.fromkeys(stage.device for stage in choice.stages):
        at = torch.device(device)
        planned = sum(stage.weights_bytes for stage in choice.stages if stage.device == device)
        planned += model.store.ready_bytes(at) if model.store is not None else 0
        ratio, slack = torch.cuda.memory_allocated(at) / planned, _MEMORY_SLACK
        name = f"held over planned, {device}"
        measures.append(measure(name, ratio, at_least=1 - slack, at_most=1 + slack))
    return measures


def _prompts(session: Session) -> list[list[int]]:
    """Three texts as tokens, or numbers where there is no tokenizer."""
    if (session.folder / VOCABULARY_FILE).exists():
        tokenizer = load_tokenizer(session.folder, num_ids=session.config.vocab_size)
        return [tokenizer.encode_text(text)[:_NUM_TOKENS] for text in _PROMPTS]
    return [[(7 * n + k) % session.config.vocab_size for k in range(12)] for n in (1, 2, 3)]


def _injected(session: Session, number: int, truth: dict[str, Tensor]) -> Stream:
    """The recorded stream in front of a layer, or a random one, rounded as the engine's is."""
    at, block = session.device, session.config.residual_block
    if f"{number}.live" in truth:
        live, snapshots = truth[f"{number}.live"], truth[f"{number}.snapshots"]
    else:
        D, N = session.config.hidden_size, -(-number // block) if block else 0
        rows = normal(_NUM_TOKENS, N + 1, D, seed=1000 + number, at=at)
        live, snapshots = rows[:, 0], rows[:, 1:]
    rounded = (part.to(at, session.dtype).double() for part in (live, snapshots))
    return Stream(live=next(rounded), snapshots=next(rounded))


def _wanted(session: Session, stream: Stream, number: int) -> tuple[Stream, Tensor]:
    read, has = session.reading(f"model.layers.{number}.")
    return reference.layer(stream, read, has, session.config, number)


def _base(session: Session, stream: Stream, number: int) -> Tensor | float:
    """What a layer adds to: nothing where it begins a block."""
    block = session.config.residual_block
    return 0.0 if block and number % block == 0 else stream.live


def _error(
    session: Session, name: str, found: Tensor, want: Tensor, base: Tensor | float, clear: Tensor
) -> Measure:
    """The largest difference over the largest that the layer adds, where choices were clear."""
    added = (want - base).abs().max()
    difference = (found.double() - want).abs().amax(-1)
    # A difference that is no number is kept, however near the choices were.
    kept = difference[clear | ~difference.isfinite()]
    error = float(kept.max() / added) if len(kept) else 0.0
    return measure(name, error, at_most=_EXACT_ERROR if session.is_exact else _ROUNDED_ERROR)


def _truth(path: str | None) -> dict[str, Tensor]:
    if path is None:
        return {}
    try:
        found: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"is no record of a smoke test: {str(error)[:100]}",
            where=f"--truth {path}",
            remedy="write one with k31ctl smoke --record FILE",
        ) from None
    return found


def _record(path: Path, kept: dict[str, Tensor]) -> None:
    """Write what was injected and what came of it, whole or not at all."""
    work = path.with_name(f".{path.name}.part")
    try:
        save_file({name: t.float().cpu().contiguous() for name, t in kept.items()}, work)
        work.replace(path)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror or error}",
            where=f"--record {path}",
            remedy="name a file in a folder that you may write to",
        ) from None
