"""Headers of the greatest length that the format allows, made to cost a reader time or memory."""

from collections.abc import Callable, Mapping
from typing import Final

NUM_BYTES: Final = 99_999_990
PLAIN: Final = b'"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'


def _filled(head: bytes, unit: bytes, tail: bytes = b"") -> bytes:
    """A text with as many units between its ends as there is room for."""
    return head + unit * ((NUM_BYTES - len(head) - len(tail)) // len(unit)) + tail


def _listed(entry: Callable[[int], bytes], most: int = NUM_BYTES) -> bytes:
    """A mapping of as many entries as there is room for, or of so many."""
    parts: list[bytes] = []
    room = NUM_BYTES - 2
    while room > 0 and len(parts) < most:
        parts.append(entry(len(parts)))
        room -= len(parts[-1]) + 1
    return b"{" + b",".join(parts[: -1 if room < 0 else None]) + b"}"


def _of_many_shapes(number: int) -> bytes:
    shape = b"1," * 31 + b"%d" % number
    return b'"%x":{"dtype":"U8","shape":[%b],"data_offsets":[0,%d]}' % (number, shape, number)


# Each with what has to be said of it.
REFUSED: Final[Mapping[str, tuple[Callable[[], bytes], str]]] = {
    "lists": (lambda: _filled(b'{"a":[', b"[],", b"1]}"), "a does not have exactly"),
    "mappings": (lambda: _filled(b'{"a":[', b"{},", b"1]}"), "a does not have exactly"),
    "depth": (lambda: _filled(b"", b'{"a":'), "a does not have exactly"),
    "one shape": (lambda: _filled(b'{"a":{"shape":[', b"1,", b"1]}}"), "a does not have exactly"),
    "one name": (lambda: _filled(b'{"', "\U0001f600".encode(), b'":1}'), "has a name of more than"),
    "escapes": (lambda: _filled(b'{"', rb"\"", b'":1}'), "has a name of more than"),
    "metadata": (
        lambda: _filled(b'{"__metadata__":{"a":"b"', b',"":""', b"}}"),
        "has more than 100,000 entries of __metadata__",
    ),
    "empty entries": (lambda: _listed(lambda i: b'"%x":{}' % i), "has 1,000 or more bad entries"),
    "tensors": (lambda: _listed(lambda i: PLAIN % i), "has more than 1,000,000 tensors"),
    "shapes": (lambda: _listed(_of_many_shapes), "has tensors of more than 10,000 types"),
    "no UTF-8": (lambda: _filled(b'{"a":"', b"\xff"), "is not readable as JSON"),
    "no end": (lambda: _filled(b'{"a', b"\\"), "is not readable as JSON"),
}  # fmt: skip
# The most that is read to its end: a million tensors whose names fill the header.
TAKEN: Final[Mapping[str, Callable[[], bytes]]] = {
    "a million tensors": lambda: _listed(lambda i: PLAIN.replace(b"x", b"045x") % i, 999_999),
    "the same, spaced": lambda: _listed(lambda i: b" " + PLAIN.replace(b"x", b"044x") % i, 999_999),
    "long names": lambda: _listed(
        lambda i: (
            b'"%x%b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
            % (i, "\U0001f600".encode() + b"a" * 4000)
        )
    ),
}
