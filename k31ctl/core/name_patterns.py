"""Many names as a few patterns: what they have in common, with their numbers as ranges."""

import re
from collections.abc import Iterable

from k31ctl.values import frozen

_NUMBER = re.compile(r"(?<![^.])(0|[1-9][0-9]{0,5})(?![^.])")


@frozen
class Pattern:
    """Tensors that differ in their numbers only; the ranges stand in braces."""

    name: str
    count: int


def patterns(names: Iterable[str], *, cap: int) -> tuple[Pattern, ...]:
    """Names grouped by what is left when their numbers are taken out: the first groups, to a cap.

    Only these groups are kept, so that a million names without a pattern take no memory.
    """
    groups: dict[tuple[str, ...], _Group] = {}
    for name in names:
        parts = _NUMBER.split(name)
        words, numbers = tuple(parts[::2]), parts[1::2]
        group = groups.get(words)
        if group is None:
            if len(groups) == cap:
                continue
            group = groups[words] = _Group(words)
        group.count += 1
        for column, number in zip(group.columns, numbers, strict=True):
            column.add(number)
    return tuple(group.pattern() for group in groups.values())


class _Group:
    """Names that differ in their numbers only: the words between, and each column of numbers."""

    __slots__ = ("columns", "count", "words")

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words, self.count = words, 0
        self.columns: list[set[str]] = [set() for _ in words[1:]]

    def pattern(self) -> Pattern:
        """The words with the range of each column between them."""
        texts = [range_text(map(int, column)) for column in self.columns]
        pairs = zip(texts, self.words[1:], strict=True)
        return Pattern(name=self.words[0] + "".join(map("".join, pairs)), count=self.count)


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers as text: ``0-2,4,6-8``."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def range_text(numbers: Iterable[int]) -> str:
    """Whole numbers as a name shows them: ``3``, or ``{0-2,4}``."""
    text = ranges(numbers)
    return text if text.isdigit() else f"{{{text}}}"
