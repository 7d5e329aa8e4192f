"""Prompts of a given length: seeded words, each request's in an order of its own.

A text is a ring of words that is read from another place for each request, so that the number of
tokens stays the same, and no prompt begins as another does unless a shared prefix is asked for.
"""

from collections.abc import Callable
from itertools import accumulate
from random import Random
from typing import Final

# Common words that byte-pair vocabularies of recent models hold whole, with the space before.
WORDS: Final = tuple(
    """
    time year people way day man thing woman life child world school state family student
    group country problem hand part place case week company system program question work
    government number night point home water room mother area money story fact month lot
    right study book eye job word business issue side kind head house service friend father
    power hour game line end member law car city community name president team minute idea
    body information back parent face others level office door health person art war history
    party result change morning reason research girl guy moment air teacher force education
    """.split()  # noqa: SIM905 - a hundred quoted words are no better
)
_RINGS: Final = 32
_MOST_RING_BYTES: Final = 256 * 2**20


class Ring:
    """Words of one length in tokens, read from any place; ``words`` may be fewer or more."""

    def __init__(self, num_words: int, random: Random) -> None:
        words = random.choices(WORDS, k=num_words)
        self._ends = list(accumulate(len(word) + 1 for word in words))
        self._text = "".join(f" {word}" for word in words)

    def text(self, place: int) -> str:
        """Return the words from a place on and then those before it."""
        cut = self._ends[place % len(self._ends)] % len(self._text)
        return self._text[cut:] + self._text[:cut]


class Prompts:
    """Texts by length; ``shared`` of each is the same for all requests."""

    def __init__(
        self, *, seed: int, shared_fraction: float, num_words: Callable[[int], int]
    ) -> None:
        self._seed, self._shared, self._num_words = seed, shared_fraction, num_words
        self._rings: dict[int, list[Ring]] = {}
        self._prefixes: dict[int, str] = {}
        self._held_bytes = 0

    def text(self, tokens: int, number: int) -> str:
        """Return the prompt of a request; the same number gives the same text."""
        words = self._num_words(tokens)
        shared = int(words * self._shared)
        own = max(words - shared, 0)
        prefix = self._prefix(shared)
        if not own:
            return prefix
        rings = self._rings.setdefault(own, [])
        which = number // own % self._num_rings(own)
        while len(rings) <= which:
            rings.append(Ring(own, Random(f"{self._seed}:{own}:{len(rings)}")))
        # A step that shares no factor with the length visits every place before one comes again.
        return prefix + rings[which].text(number * _step(own))

    def num_distinct(self, tokens: int) -> int:
        """How many prompts of a length differ from their first own word on."""
        own = self._num_words(tokens) - int(self._num_words(tokens) * self._shared)
        return max(own, 1) * self._num_rings(max(own, 1))

    @staticmethod
    def _num_rings(own: int) -> int:
        return max(1, min(_RINGS, _MOST_RING_BYTES // (own * 16)))

    def _prefix(self, words: int) -> str:
        if words and words not in self._prefixes:
            self._prefixes[words] = Ring(words, Random(f"{self._seed}:shared:{words}")).text(0)
        return self._prefixes.get(words, "")


def _step(length: int) -> int:
    """A stride near the golden section of a length that is coprime to it."""
    from math import gcd  # noqa: PLC0415

    step = max(1, round(length * 0.618))
    while gcd(step, length) != 1:
        step += 1
    return step
