"""Prompts of a given length: seeded words, each request's in an order of its own.

A text is a ring of words that is read from another place for each request, so that the number of
tokens stays the same, and no prompt begins as another does unless a shared prefix is asked for.
"""

from collections.abc import Callable, Sequence
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
BLOCK_TOKENS: Final = 512  # Source: Mooncake's traces, FAST25-release/README.md
# So many words at its start make a block unlike others: enough for 90 million of them.
_NAME_WORDS: Final = 4
_NAMES: Final = tuple(sorted(set(WORDS)))
_RINGS: Final = 32
_MOST_TRIES: Final = 12
_NEAR: Final = 4
_MOST_RING_BYTES: Final = 256 * 2**20


class Ring:
    """Words in one order, read from any place on and around to the one before it."""

    def __init__(self, words: Sequence[str]) -> None:
        self._ends = list(accumulate(len(word) + 1 for word in words))
        self._text = "".join(f" {word}" for word in words)

    def text(self, place: int) -> str:
        """Return the words from a place on and then those before it."""
        cut = self._ends[place % len(self._ends)] % len(self._text)
        return self._text[cut:] + self._text[:cut]


class Prompts:
    """Texts by length; ``shared_fraction`` of each is the same for all requests.

    All texts of a length hold the same words in other orders, so that they have as many tokens as
    one of them. ``calibrate`` finds the number of words; before it, a word is taken as a token.
    """

    def __init__(self, *, seed: int, shared_fraction: float) -> None:
        self._seed, self._shared = seed, shared_fraction
        self._words_per_token = 1.0
        self._rings: dict[int, list[Ring]] = {}

    def calibrate(self, tokens: int, count: Callable[[str], int | None]) -> int | None:
        """Set the number of words by counting tokens of texts with about ``tokens`` of them.

        Returns how many the nearest text is off by, 0 if none; None where they were not counted.
        """
        words, nearest = tokens, None
        for _ in range(_MOST_TRIES):
            found = count(self.words(words, 0))
            if found is None:
                break
            if nearest is None or abs(found - tokens) < abs(nearest):
                nearest, self._words_per_token = found - tokens, words / tokens
            if found == tokens:
                break
            far, step = abs(found - tokens) > _NEAR, 1 if found < tokens else -1
            words = max(1, round(words * tokens / found) if far else words + step)
        return nearest

    def text(self, tokens: int, number: int) -> str:
        """Return the prompt of a request; the same number gives the same text."""
        return self.words(self._num_words(tokens), number)

    def of_blocks(self, blocks: Sequence[int], tokens: int, number: int) -> str:
        """Return a prompt that begins with blocks; what is beyond them is the request's own."""
        left, size = self._num_words(tokens), self._num_words(BLOCK_TOKENS)
        text = ""
        for block in blocks:
            if left < size:
                text += "".join(f" {word}" for word in self._block(block, size).split()[:left])
                return text
            text += self._block(block, size)
            left -= size
        return text + self.words(left, number) if left else text

    def _block(self, block: int, size: int) -> str:
        base = len(_NAMES)
        name = [_NAMES[block // base**place % base] for place in range(_NAME_WORDS)]
        rest = max(1, size - _NAME_WORDS)
        return "".join(f" {word}" for word in name) + self._ring(rest, 0).text(block)

    def _num_words(self, tokens: int) -> int:
        return max(1, round(tokens * self._words_per_token))

    def words(self, count: int, number: int) -> str:
        """Return a text of so many words."""
        shared = int(count * self._shared)
        prefix = self._ring(shared, -1).text(0) if shared else ""
        own = count - shared
        if not own:
            return prefix
        which = number // own % max(1, min(_RINGS, _MOST_RING_BYTES // (own * 16)))
        # A step that shares no factor with the length visits every place before one comes again.
        return prefix + self._ring(own, which).text(number * _step(own))

    def _ring(self, length: int, which: int) -> Ring:
        """Ring number ``which`` of a length; -1 is the one that all prompts share."""
        rings = self._rings.setdefault(length if which >= 0 else -length, [])
        while len(rings) <= which or not rings:
            kind = "shared" if which < 0 else "own"
            words = Random(f"{self._seed}:{kind}").choices(WORDS, k=length)
            Random(f"{self._seed}:{kind}:{len(rings)}").shuffle(words)
            rings.append(Ring(words))
        return rings[which]


def _step(length: int) -> int:
    """A stride near the golden section of a length that is coprime to it."""
    from math import gcd  # noqa: PLC0415

    step = max(1, round(length * 0.618))
    while gcd(step, length) != 1:
        step += 1
    return step
