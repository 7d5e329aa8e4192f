"""What the service needs of a model: tokens in, tokens out, a place freed when nobody listens."""

from collections.abc import AsyncGenerator, Mapping
from typing import NamedTuple, Protocol

from k31ctl.engine.images import PreparedImage
from k31ctl.values import frozen


@frozen
class Sampling:
    """How tokens are chosen, and when to end.

    ``top_k`` 0 means no limit. ``num_top_logprobs`` is None where no probabilities are wanted.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop_ids: frozenset[int] = frozenset()
    num_top_logprobs: int | None = None


@frozen
class Generation:
    """One piece of work; images stand at the prompt's media pads, in order."""

    prompt_ids: tuple[int, ...]
    images: tuple[PreparedImage, ...]
    sampling: Sampling


class GeneratedToken(NamedTuple):
    """One token; the natural logarithm of its probability, and the likeliest others with theirs."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@frozen
class Load:
    """What a generator holds at this moment.

    ``expert_uses`` counts streamed experts by where they were when they were needed; None where
    all are in memory.
    """

    num_running: int
    num_waiting: int
    num_slots: int
    num_cached_tokens: int
    num_cache_tokens: int
    expert_uses: Mapping[str, int] | None = None


class GenerationError(Exception):
    """The model cannot go on with one request; others are not concerned."""


class GenerationStoppedError(GenerationError):
    """The generator has been told to stop."""


class Generator(Protocol):
    """A model that serves many requests at a time."""

    def generate(self, work: Generation) -> AsyncGenerator[GeneratedToken, None]:
        """Yield tokens up to and with the first of ``stop_ids``, or ``max_tokens`` of them.

        Closing it (``aclose``) ends the work and frees all it holds before it returns.
        Raises ``GenerationError`` where the model fails, or the generator stops.
        """

    def stop(self) -> None:
        """End all work, now and from now on, from the loop that waits for it.

        What waits for tokens gets ``GenerationStoppedError``, without waiting for the model.
        """

    def load(self) -> Load:
        """What is in use now."""
