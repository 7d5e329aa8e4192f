"""Many requests at once: prompts in pieces, one token of each in every step, slots given back."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from k31ctl.engine.image_prompt import PromptImages
from k31ctl.engine.images import PreparedImage
from k31ctl.engine.model import Model, Placed, Segment
from k31ctl.engine.sample import Likelihood, Sampler, Sampling, likelihood
from k31ctl.engine.vision import VisionEncoder
from k31ctl.errors import RefusedError
from k31ctl.values import frozen

_ImageVectors = tuple[list[int], torch.Tensor] | None


class Finish(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"


@frozen
class Request:
    """A prompt and how to go on from it; ``num_top`` asks for likelihoods where it is not None.

    ``images`` stand at the prompt's media pads, in order, one pad for each of their tokens.
    """

    id: str
    tokens: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stop_ids: frozenset[int] = frozenset()
    num_top: int | None = None
    images: tuple[PreparedImage, ...] = ()


@frozen
class Said:
    """One token of one request; the last one carries the reason."""

    request_id: str
    token: int
    likelihood: Likelihood | None
    finish: Finish | None


@frozen
class Failed:
    """A request that cannot go on, and why; what it held is given back."""

    request_id: str
    error: Exception


@dataclass(slots=True)
class _Running:
    request: Request
    slot: int
    sampler: Sampler
    images: PromptImages | None
    num_done: int = 0
    said: list[int] = field(default_factory=list)

    @property
    def num_pending(self) -> int:
        """How many tokens the model has not seen yet."""
        return len(self.request.tokens) + len(self.said) - self.num_done

    def pending(self, most: int) -> tuple[int, ...]:
        """The next of them, so many at most."""
        num_prompt = len(self.request.tokens)
        if self.num_done < num_prompt:
            return self.request.tokens[self.num_done : self.num_done + most]
        return tuple(self.said[self.num_done - num_prompt :])


class Generation:
    """Requests over one model, with room for so many at once and for so many tokens in all."""

    def __init__(
        self,
        model: Model,
        *,
        num_slots: int,
        num_tokens: int,
        piece_tokens: int = 512,
        vision: VisionEncoder | None = None,
    ) -> None:
        self._model, self._piece_tokens, self._num_tokens = model, piece_tokens, num_tokens
        self._vision = vision
        self.cache = model.cache(num_slots=num_slots, num_tokens=num_tokens)
        self._waiting: deque[Request] = deque()
        self._running: dict[str, _Running] = {}

    @property
    def num_waiting(self) -> int:
        """Requests without a slot."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests with a slot."""
        return len(self._running)

    @property
    def num_encoded_images(self) -> int:
        """Images whose vectors are held, as their prompts are half read."""
        held = (running.images for running in self._running.values())
        return sum(images.num_encoded for images in held if images is not None)

    def submit(self, request: Request) -> None:
        """Take a request; raises RefusedError where it could never run, or images do not fit it."""
        needed = len(request.tokens) + request.max_tokens
        most = min(self._num_tokens, self._model.config.max_tokens)
        if needed > most:
            raise RefusedError(
                f"{len(request.tokens):,} tokens and {request.max_tokens:,} more do not fit",
                where=f"request {request.id}",
                remedy=f"ask for at most {most:,} in all",
            )
        if not request.tokens or request.max_tokens < 1 or request.id in self._ids():
            raise ValueError("a request needs tokens, room for one more, and an id of its own")
        self._images(request)
        self._waiting.append(request)

    def cancel(self, request_id: str) -> bool:
        """Drop a request and give back what it held; False where it has ended already."""
        if (running := self._running.pop(request_id, None)) is not None:
            self.cache.close(running.slot)
            return True
        left = [request for request in self._waiting if request.id != request_id]
        found = len(left) < len(self._waiting)
        self._waiting = deque(left)
        return found

    def step(self) -> list[Said | Failed]:
        """Run the model once over what there is to do; returns what was said, in order.

        What goes wrong with one request before or behind the model ends that request alone; what
        goes wrong in the model, all that it was computing, whose states may have moved on.
        """
        told: list[Said | Failed] = [*self._admit()]
        batch, vectors = [], []
        for running, tokens in self._batch():
            try:
                vectors.append(_image_vectors(running, len(tokens)))
            except Exception as error:  # noqa: BLE001  (it is this request's alone)
                told.append(self._failed(running, error))
            else:
                batch.append((running, tokens))
        return told + self._said(batch, vectors)

    def _said(
        self, batch: list[tuple[_Running, tuple[int, ...]]], vectors: list[_ImageVectors]
    ) -> list[Said | Failed]:
        """What the model says behind these pieces."""
        if not batch:
            return []
        segments = [
            Segment(slot=running.slot, start=running.num_done, length=len(tokens))
            for running, tokens in batch
        ]
        flat = [token for _, tokens in batch for token in tokens]
        placed = _placed(vectors, [len(tokens) for _, tokens in batch])
        try:
            logits_SV = self._model(torch.tensor(flat), segments, self.cache, placed=placed)
        except Exception as error:  # noqa: BLE001  (it is told to each of these requests)
            return [self._failed(running, error) for running, _ in batch]
        told: list[Said | Failed] = []
        for (running, tokens), logits_V in zip(batch, logits_SV, strict=True):
            running.num_done += len(tokens)
            if running.num_pending:
                continue
            try:
                told.append(self._say(running, logits_V))
            except Exception as error:  # noqa: BLE001  (it is this request's alone)
                told.append(self._failed(running, error))
        return told

    def run(self) -> Iterator[Said]:
        """Steps until nothing is left; raises the error of the first request that fails."""
        while self._waiting or self._running:
            for told in self.step():
                if isinstance(told, Failed):
                    raise told.error
                yield told

    def _failed(self, running: _Running, error: Exception) -> Failed:
        self.cancel(running.request.id)
        return Failed(request_id=running.request.id, error=error)

    def _ids(self) -> set[str]:
        return {request.id for request in self._waiting} | self._running.keys()

    def _admit(self) -> Iterator[Failed]:
        """First come, first served, each with all the room it may need; yields who cannot begin."""
        while self._waiting:
            request = self._waiting[0]
            slot = self.cache.open(len(request.tokens) + request.max_tokens)
            if slot is None:
                return
            self._waiting.popleft()
            try:
                self._running[request.id] = _Running(
                    request=request,
                    slot=slot,
                    sampler=Sampler(request.sampling),
                    images=self._images(request),
                )
            except Exception as error:  # noqa: BLE001  (it is this request's alone)
                self.cache.close(slot)
                yield Failed(request_id=request.id, error=error)

    def _images(self, request: Request) -> PromptImages | None:
        if self._vision is None:
            if request.images:
                raise RefusedError(
                    "the model has no image encoder here",
                    where=f"request {request.id}",
                    remedy="load_vision reads it; or leave the images out",
                )
            return None
        media_pad = self._vision.shape.media_pad
        return PromptImages(
            request.tokens, request.images, media_pad=media_pad, encode=self._vision
        )

    def _batch(self) -> list[tuple[_Running, tuple[int, ...]]]:
        """Everyone who waits for one token, then prompts up to the piece, oldest first."""
        ready = sorted(self._running.values(), key=lambda running: running.num_pending > 1)
        batch, room = [], self._piece_tokens
        for running in ready:
            is_piece = running.num_pending > 1
            tokens = running.pending(room if is_piece else 1)
            room -= len(tokens) if is_piece else 0
            if tokens:
                batch.append((running, tokens))
        # Slots in order, so that the state of neighbours is updated in place.
        return sorted(batch, key=lambda entry: (len(entry[1]) > 1, entry[0].slot))

    def _say(self, running: _Running, logits_V: torch.Tensor) -> Said:
        request = running.request
        token = running.sampler.choose(logits_V)
        running.said.append(token)
        finish = None
        if token in request.stop_ids:
            finish = Finish.STOP
        elif len(running.said) == request.max_tokens:
            finish = Finish.LENGTH
        if finish is not None:
            self.cancel(request.id)
        told = None
        if request.num_top is not None:
            told = likelihood(logits_V, token, num_top=request.num_top)
        return Said(request_id=request.id, token=token, likelihood=told, finish=finish)


def _image_vectors(running: _Running, length: int) -> _ImageVectors:
    """What the images say that stand in a request's next tokens, and in which of them."""
    if not running.images:
        return None
    return running.images.within(running.num_done, running.num_done + length)


def _placed(found: list[_ImageVectors], lengths: list[int]) -> Placed | None:
    """The same for all requests of a step."""
    rows: list[int] = []
    vectors, first = [], 0
    for each, length in zip(found, lengths, strict=True):
        if each is not None:
            rows += [first + row for row in each[0]]
            vectors.append(each[1])
        first += length
    return Placed(torch.tensor(rows), torch.cat(vectors)) if vectors else None
