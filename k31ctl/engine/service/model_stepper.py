"""The engine's own model as the service needs it."""

import random
from collections.abc import Iterator
from pathlib import Path

from k31ctl.engine.checkpoint import Checkpoint, load_model, load_vision
from k31ctl.engine.generate import Failed as FailedRequest
from k31ctl.engine.generate import Generation as Requests
from k31ctl.engine.generate import Request
from k31ctl.engine.model import Model
from k31ctl.engine.sample import Sampling
from k31ctl.engine.service.generator import GeneratedToken, Generation, Load
from k31ctl.engine.service.stepped import Failed, Said, SteppedGenerator
from k31ctl.engine.service.tasks import ServedModel
from k31ctl.engine.streamed import ExpertStore
from k31ctl.engine.tensors import Target
from k31ctl.engine.tokenizer import Tokenizer, load_tokenizer
from k31ctl.engine.vision import VisionEncoder
from k31ctl.errors import InputError

_SEEDS = 2**63


class ModelStepper:
    """Requests over one model; a request without a seed is given one."""

    def __init__(self, requests: Requests, store: ExpertStore | None) -> None:
        cache = requests.cache
        self._requests, self._store = requests, store
        self._num_slots, self._num_tokens = cache.num_free_slots, cache.num_free_tokens

    def submit(self, number: int, work: Generation) -> None:
        """Take a piece of work; it may wait for a slot."""
        asked = work.sampling
        seed = random.randrange(_SEEDS) if asked.seed is None else asked.seed
        sampling = Sampling(
            temperature=asked.temperature,
            top_p=asked.top_p,
            top_k=asked.top_k,
            min_p=asked.min_p,
            seed=seed,
        )
        self._requests.submit(
            Request(
                id=str(number),
                tokens=work.prompt_ids,
                max_tokens=asked.max_tokens,
                sampling=sampling,
                stop_ids=asked.stop_ids,
                num_top=asked.num_top_logprobs,
                images=work.images,
            )
        )

    def cancel(self, number: int) -> None:
        """Drop a piece of work and give back its slot and its pages."""
        self._requests.cancel(str(number))

    def step(self) -> Iterator[Said | Failed]:
        """Run the model once over all that is under way."""
        for said in self._requests.step():
            if isinstance(said, FailedRequest):
                yield Failed(int(said.request_id), said.error)
                continue
            told = said.likelihood
            token = GeneratedToken(said.token)
            if told is not None:
                token = GeneratedToken(said.token, told.logprob, told.top)
            yield Said(int(said.request_id), token, said.finish is not None)

    def load(self) -> Load:
        """What is in use now."""
        return Load(
            num_running=self._requests.num_running,
            num_waiting=self._requests.num_waiting,
            num_slots=self._num_slots,
            num_cached_tokens=self._num_tokens - self._requests.cache.num_free_tokens,
            num_cache_tokens=self._num_tokens,
            expert_uses=None if self._store is None else self._store.uses(),
        )


def opened(
    source: Path | Checkpoint,
    target: Target,
    *,
    name: str,
    num_slots: int,
    num_tokens: int,
    model: Model | None = None,
) -> tuple[ServedModel, SteppedGenerator]:
    """Return a checkpoint ready for ``run_service``; its generator is to be closed at the end.

    ``num_tokens`` is what the caches of all requests hold together; ``model`` is the checkpoint
    where it is loaded already.
    """
    checkpoint = Checkpoint.at(source)
    config = checkpoint.config
    tokenizer = load_tokenizer(checkpoint.folder, num_ids=config.vocab_size)
    model = load_model(checkpoint, target) if model is None else model
    vision = _vision(checkpoint, target, tokenizer)
    requests = Requests(model, num_slots=num_slots, num_tokens=num_tokens, vision=vision)
    most = min(num_tokens, config.max_tokens)
    sizes = None if vision is None else vision.shape.sizes
    served = ServedModel(name=name, tokenizer=tokenizer, vision=sizes, max_model_tokens=most)
    return served, SteppedGenerator(ModelStepper(requests, model.store))


def _vision(checkpoint: Checkpoint, target: Target, tokenizer: Tokenizer) -> VisionEncoder | None:
    """The image encoder, where it and the tokenizer agree on the place of an image."""
    vision = load_vision(checkpoint, target)
    if vision is not None and vision.shape.media_pad != tokenizer.media_pad:
        raise InputError(
            f"media_placeholder_token_id is {vision.shape.media_pad}, and the tokenizer has "
            f"{tokenizer.media_pad} in its place",
            where=str(checkpoint.folder),
            remedy="use the config.json and the tokenizer of one release",
        )
    return vision
