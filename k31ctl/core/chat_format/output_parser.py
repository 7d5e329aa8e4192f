"""A model's output as reasoning, answer and tool calls, piece by piece and in linear time.

Structure comes from markers, which the caller knows by their token ids; text is never searched for
them. Models skip and mangle tags, and each rule below keeps what they meant:

- opening the answer or the tools ends the reasoning, closed or not;
- closing the answer where only reasoning was seen means that the reasoning was the answer;
- text behind closed reasoning is the answer if no other comes;
- a call counts once it is closed, its last argument closed or not; unclosed it counts where its
  arguments are closed and the model went on, with another call or out of the tools;
- of several values under one key the last counts, as arguments or within ``json``.
"""

from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from k31ctl.core.chat_format.tag_header import Ending, Tag, TagHeader
from k31ctl.core.chat_format.tool_arguments import Argument, arguments_json


class Marker(Enum):
    """A token of structure."""

    OPEN = auto()
    CLOSE = auto()
    SEPARATOR = auto()
    END_OF_MESSAGE = auto()


class Reasoning(NamedTuple):
    """More reasoning."""

    text: str


class Content(NamedTuple):
    """More of the answer."""

    text: str


class ReasoningWasContent(NamedTuple):
    """All reasoning so far was the answer: the model skipped its first channel."""

    text: str


class Call(NamedTuple):
    """A whole call of a tool; its arguments are JSON."""

    name: str
    arguments: str


Event = Reasoning | Content | ReasoningWasContent | Call


class Channel(Enum):
    """Where the model is writing."""

    THINK = auto()
    RESPONSE = auto()
    BETWEEN = auto()
    TOOLS = auto()
    CALL = auto()
    ARGUMENT = auto()
    JSON = auto()
    ENDED = auto()


_IN_CALL = (Channel.CALL, Channel.ARGUMENT, Channel.JSON)
_IN_TOOLS = (Channel.TOOLS, *_IN_CALL)


class OutputParser:
    """One answer as it is generated."""

    def __init__(self, *, is_thinking: bool) -> None:
        self.channel = Channel.THINK if is_thinking else Channel.RESPONSE
        self._header: TagHeader | None = None
        self._reasoning: list[str] | None = []  # kept for as long as it may be the answer
        self._stray: list[str] | None = []  # text outside channels, for as long as no answer came
        self._tool = ""
        self._arguments: list[Argument | str] = []  # text is that of a ``json`` element
        self._element: dict[str, str] = {}
        self._text: list[str] = []

    @property
    def is_reasoning(self) -> bool:
        """Whether text would be reasoning now."""
        return self.channel is Channel.THINK and self._header is None

    @property
    def is_content(self) -> bool:
        """Whether text would be part of the answer now."""
        return self.channel is Channel.RESPONSE and self._header is None

    def feed(self, piece: Marker | str) -> Iterator[Event]:
        """Yield what one more piece brings; it must be consumed before the next one is fed."""
        if self.channel is Channel.ENDED:
            return
        if isinstance(piece, str):
            yield from self._feed_text(piece)
            return
        if self._header is not None:
            yield from self._end_header(_ENDINGS[piece])
        if piece is Marker.END_OF_MESSAGE:
            yield from self._end()
        elif piece is not Marker.SEPARATOR and not self._has_ended():
            self._header = TagHeader(is_closing=piece is Marker.CLOSE)

    def finish(self) -> Iterator[Event]:
        """Yield what is left when the output was cut; an unfinished tag or call is dropped."""
        self._header = None
        if not self._has_ended():
            yield from self._end()

    def _has_ended(self) -> bool:
        return self.channel is Channel.ENDED

    def _feed_text(self, text: str) -> Iterator[Event]:
        if self._header is not None:
            left = self._header.feed(text)
            if left is None:
                return
            yield from self._end_header(Ending.TOO_LONG)
            text = left
        yield from self._write(text)

    def _end_header(self, ending: Ending) -> Iterator[Event]:
        header, self._header = self._header, None
        if header is None:
            return
        tag = header.ended(ending)
        if tag.name:
            yield from self._close(tag) if header.is_closing else self._open(tag)
        yield from self._write(tag.text_behind)

    def _write(self, text: str) -> Iterator[Event]:
        if not text:
            return
        match self.channel:
            case Channel.THINK:
                if self._reasoning is not None:
                    self._reasoning.append(text)
                yield Reasoning(text)
            case Channel.RESPONSE:
                self._stray = self._reasoning = None
                yield Content(text)
            case Channel.BETWEEN if self._stray is not None:
                self._stray.append(text)
            case Channel.ARGUMENT | Channel.JSON:
                self._text.append(text)
            case _:
                pass

    def _open(self, tag: Tag) -> Iterator[Event]:
        match tag.name:
            case "think":
                self.channel = Channel.THINK
                return
            case "response":
                self.channel, self._stray = Channel.RESPONSE, None
            case "tools":
                yield from self._left_call()
                self.channel, self._stray = Channel.TOOLS, None
            case "call":
                yield from self._left_call()
                self.channel, self._stray = Channel.CALL, None
                self._tool = tag.attributes.get("tool", "")
                self._arguments, self._text = [], []
            case "argument" | "json" if self.channel in _IN_CALL:
                self._end_element()
                self._element = tag.attributes
                self.channel = Channel.JSON if tag.name == "json" else Channel.ARGUMENT
            case _:
                return
        self._reasoning = None
        yield from ()

    def _close(self, tag: Tag) -> Iterator[Event]:
        match tag.name:
            case "response" if self.channel is Channel.THINK and self._reasoning is not None:
                if text := "".join(self._reasoning):
                    yield ReasoningWasContent(text)
                self.channel, self._stray = Channel.BETWEEN, None
            case "response" if self.channel in (Channel.RESPONSE, Channel.BETWEEN):
                yield from self._stray_content()
                self.channel = Channel.BETWEEN
            case "think" if self.channel is Channel.THINK:
                self.channel = Channel.BETWEEN
            case "argument" | "json" if self.channel in _IN_CALL:
                self._end_element()
            case "call" if self.channel in _IN_CALL:
                self._end_element()
                yield from self._call()
                self.channel = Channel.TOOLS
            case "tools" if self.channel in _IN_TOOLS:
                yield from self._left_call()
                self.channel = Channel.BETWEEN
            case "message":
                yield from self._end()
            case _:
                pass
        self._reasoning = None

    def _end_element(self) -> None:
        text, key = "".join(self._text), self._element.get("key")
        if self.channel is Channel.JSON:
            self._arguments.append(text)
        elif self.channel is Channel.ARGUMENT and key is not None:
            self._arguments.append(Argument(key, self._element.get("type", "string"), text))
        self.channel, self._text, self._element = Channel.CALL, [], {}

    def _left_call(self) -> Iterator[Event]:
        """The call that is open, where no argument of it may be cut."""
        if self.channel is Channel.CALL:
            yield from self._call()

    def _call(self) -> Iterator[Event]:
        if self._tool:
            yield Call(self._tool, arguments_json(self._arguments))
        self._tool = ""

    def _stray_content(self) -> Iterator[Event]:
        text, self._stray = "".join(self._stray or ()), None
        if text.strip():
            yield Content(text)

    def _end(self) -> Iterator[Event]:
        if self.channel is Channel.BETWEEN:
            yield from self._stray_content()
        self.channel = Channel.ENDED


_ENDINGS = {
    Marker.OPEN: Ending.MARKER,
    Marker.CLOSE: Ending.MARKER,
    Marker.SEPARATOR: Ending.SEPARATOR,
    Marker.END_OF_MESSAGE: Ending.END_OF_MESSAGE,
}
