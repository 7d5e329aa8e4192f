"""Pieces of a prompt: text that must stay text, and markers that only the format may write.

Every piece is encoded on its own, plain ones with special tokens switched off, so that a user who
types a marker gets letters and no structure. Tag names and attributes are plain as well.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

OPEN: Final = "<|open|>"
CLOSE: Final = "<|close|>"
SEP: Final = "<|sep|>"
END_OF_MESSAGE: Final = "<|end_of_msg|>"
MEDIA_BEGIN: Final = "<|media_begin|>"
MEDIA_CONTENT: Final = "<|media_content|>"
MEDIA_PAD: Final = "<|media_pad|>"
MEDIA_END: Final = "<|media_end|>"

Attributes = Iterable[tuple[str, str]]


class Segment(NamedTuple):
    """A piece of a prompt, and whether special tokens count in it."""

    text: str
    is_special: bool


def plain(text: str) -> Iterator[Segment]:
    """Text in which nothing is special; none where it is empty."""
    if text:
        yield Segment(text, False)


def open_tag(name: str, attributes: Attributes = ()) -> Iterator[Segment]:
    """The tag that opens an element; an attribute is four pieces."""
    yield Segment(OPEN, True)
    yield Segment(name, False)
    for key, value in attributes:
        yield Segment(f" {key}", False)
        yield Segment('="', False)
        yield from plain(escaped(value))
        yield Segment('"', False)
    yield Segment(SEP, True)


def close_tag(name: str) -> Iterator[Segment]:
    """The tag that closes an element."""
    yield Segment(CLOSE, True)
    yield Segment(name, False)
    yield Segment(SEP, True)


def element(
    name: str, body: Iterable[Segment], *, attributes: Attributes = ()
) -> Iterator[Segment]:
    """A body between its tags; the body is not escaped."""
    yield from open_tag(name, attributes)
    yield from body
    yield from close_tag(name)


def message(attributes: Attributes, body: Iterable[Segment]) -> Iterator[Segment]:
    """A whole message, with the token that ends it."""
    yield from element("message", body, attributes=attributes)
    yield Segment(END_OF_MESSAGE, True)


def media_block(*, width: int, height: int) -> Segment:
    """One image, by its size as sent; its one pad is repeated when the prompt is encoded."""
    return Segment(
        f"{MEDIA_BEGIN}image {width}x{height}{MEDIA_CONTENT}{MEDIA_PAD}{MEDIA_END}", True
    )


def escaped(value: str) -> str:
    """An attribute's value as it stands between quotes."""
    return value.replace("&", "&amp;").replace('"', "&quot;")


def unescaped(value: str) -> str:
    """What an attribute's value says."""
    return value.replace("&quot;", '"').replace("&amp;", "&")
