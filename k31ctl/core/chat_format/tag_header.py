"""The header of a tag in a model's output: its name and attributes, however it ends.

A header should end with a separator. Models leave it out, or write a marker where no tag follows;
then what cannot belong to a header is text again, so that none of the answer is lost.
"""

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from k31ctl.core.chat_format.segments import unescaped

_PLAIN_TAGS: Final = ("think", "response", "tools")
_TAGS_WITH_ATTRIBUTES: Final = ("message", "call", "argument", "json")
_TAGS: Final = (*_PLAIN_TAGS, *_TAGS_WITH_ATTRIBUTES)
_ATTRIBUTE: Final = re.compile(r'\s+([\w.:-]+)="([^"]*)"')
_WORD: Final = re.compile(r"\w*")
_MOST_CHARACTERS: Final = 128
_MOST_WITH_ATTRIBUTES: Final = 8192


class Ending(Enum):
    """What came behind a header."""

    SEPARATOR = auto()
    MARKER = auto()
    END_OF_MESSAGE = auto()
    TOO_LONG = auto()


class Tag(NamedTuple):
    """What a header says; ``text_behind`` is text that stood in it and belongs to no header."""

    name: str
    attributes: dict[str, str]
    text_behind: str


class TagHeader:
    """A header that is being read."""

    def __init__(self, *, is_closing: bool) -> None:
        self.is_closing = is_closing
        self._text = ""

    def feed(self, text: str) -> str | None:
        """Take text into the header; return what is left once the header has grown too long.

        It ends at the same character however the text is cut into pieces.
        """
        while text:
            short = len(self._text) < _MOST_CHARACTERS
            room = (_MOST_CHARACTERS if short else _MOST_WITH_ATTRIBUTES) - len(self._text)
            line_end = text.find("\n", 0, room)
            taken = text[: line_end + 1 if line_end >= 0 else room]
            self._text += taken
            text = text[len(taken) :]
            if self._is_too_long():
                return text
        return None

    def _is_too_long(self) -> bool:
        if self._text.startswith(_TAGS_WITH_ATTRIBUTES):
            return len(self._text) >= _MOST_WITH_ATTRIBUTES
        return len(self._text) >= _MOST_CHARACTERS or self._text.endswith("\n")

    def ended(self, ending: Ending) -> Tag:
        """Return what the header says; its name is empty where it is no tag of the format."""
        word = _WORD.match(self._text)
        name = word.group() if word else ""
        if name not in _TAGS:
            if ending is Ending.SEPARATOR:
                return Tag("", {}, "")
            name = next((tag for tag in _TAGS if self._text.startswith(tag)), "")
        if not name:
            is_fragment = any(tag.startswith(self._text) for tag in _TAGS)
            return Tag("", {}, "" if is_fragment else self._text)
        attributes, end = self._attributes(len(name))
        behind = self._text[end:]
        if ending is Ending.SEPARATOR or not behind.strip():
            behind = ""
        return Tag(name, attributes, behind)

    def _attributes(self, start: int) -> tuple[dict[str, str], int]:
        found: dict[str, str] = {}
        while match := _ATTRIBUTE.match(self._text, start):
            found[match[1]] = unescaped(match[2])
            start = match.end()
        return found, start
