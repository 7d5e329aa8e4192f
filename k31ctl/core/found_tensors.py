"""The tensors that a header names, as rows or as columns."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, overload


class TensorKind(NamedTuple):
    """What tensors have in common that differ in their names only."""

    dtype: str
    shape: tuple[int, ...]
    num_bytes: int


class FoundTensor(NamedTuple):
    """One tensor of a header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int


_made: Final = partial(tuple.__new__, FoundTensor)  # half the time of its own ``_make``


class TensorColumns(Sequence[FoundTensor]):
    """The tensors of one header: names beside kinds, of which a header has a few.

    A row is made when it is asked for; half a million of them take longer than to read them.
    """

    __slots__ = ("kinds", "names")

    def __init__(self, names: Sequence[str], kinds: Sequence[TensorKind]) -> None:
        self.names, self.kinds = names, kinds

    def __len__(self) -> int:
        """How many tensors there are."""
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> FoundTensor: ...

    @overload
    def __getitem__(self, index: slice) -> "TensorColumns": ...

    def __getitem__(self, index: int | slice) -> "FoundTensor | TensorColumns":
        """One tensor, or some of them."""
        if isinstance(index, slice):
            return TensorColumns(self.names[index], self.kinds[index])
        return FoundTensor(self.names[index], *self.kinds[index])

    def __iter__(self) -> Iterator[FoundTensor]:
        """Every tensor, in the order of the header."""
        pairs = zip(self.names, self.kinds, strict=True)
        return map(_made, ((name, *kind) for name, kind in pairs))

    def __eq__(self, other: object) -> bool:
        """Whether the rows are the same, in the same order."""
        if not isinstance(other, Iterable):
            return NotImplemented
        return tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """The rows."""
        return repr(tuple(self))


def names_of(tensors: Iterable[FoundTensor]) -> Sequence[str]:
    """The names alone, without making rows for them."""
    if isinstance(tensors, TensorColumns):
        return tensors.names
    return [tensor.name for tensor in tensors]
