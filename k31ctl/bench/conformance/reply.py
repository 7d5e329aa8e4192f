"""One answer of an endpoint in the same words for every kind of API."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from k31ctl.values import frozen

OK: Final = 200
BAD_REQUEST: Final = 400
SERVER_ERROR: Final = 500
MARKUP: Final = (
    "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "<think>", "</think>",
)  # fmt: skip


@frozen
class Call:
    """A tool call as it was sent; ``arguments`` is text that should be a JSON object."""

    id: str
    name: str
    arguments: str

    @property
    def values(self) -> dict[str, Any] | None:
        """The arguments, None where they are no JSON object."""
        try:
            found = json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


@frozen
class Tokens:
    """Usage as the server counted it; ``prompt`` with what came from a cache."""

    prompt: int
    completion: int
    total: int | None = None
    reasoning: int | None = None


@frozen
class Reply:
    """What came back.

    ``reasoning`` holds what was said under each field for it. ``finish`` is in the words of chat
    completions. ``problems`` are breaks of the documented form, and ``error`` is the message of
    an error, None where there is none.
    """

    status: int
    headers: Mapping[str, str]
    reasoning: Mapping[str, str]
    content: str
    calls: tuple[Call, ...]
    finish: str | None
    tokens: Tokens | None
    problems: tuple[str, ...]
    error: str | None
    document: Any = None

    @property
    def thought(self) -> str:
        """The reasoning, from whichever field holds some."""
        return next((text for text in self.reasoning.values() if text), "")

    @property
    def is_refused(self) -> bool:
        """Whether the request was turned down as the client's mistake."""
        return BAD_REQUEST <= self.status < SERVER_ERROR

    @property
    def is_cut(self) -> bool:
        """Whether the answer ended because the limit was met."""
        return self.finish == "length"

    @property
    def refusal(self) -> str:
        """Status and message of an answer that is none."""
        return f"{self.status}: {self.error or 'no message'}"[:200]


class Api(Protocol):
    """A kind of API: how a chat is put to it, and how its answers are read.

    Checks write chats as bodies of chat completions; each kind turns them into its own.
    """

    name: str
    path: str

    def body(self, chat: Mapping[str, Any]) -> dict[str, Any]:
        """The body of a request for a chat."""

    def whole(self, status: int, headers: Mapping[str, str], document: Any) -> Reply:
        """Read an answer in one document."""

    def streamed(self, headers: Mapping[str, str], events: Iterable[bytes]) -> Reply:
        """Read an answer in events."""


def markup_in(text: str) -> str | None:
    """The first mark of the chat format that stands in a text as letters."""
    return next((mark for mark in MARKUP if mark in text), None)


def error_message(document: Any) -> str | None:
    """The message of an error document, in the forms of OpenAI, SGLang and Anthropic."""
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    if isinstance(error, dict):
        message = error.get("message")
        return message if isinstance(message, str) and message else None
    if document.get("object") == "error" and isinstance(document.get("message"), str):
        return str(document["message"])
    return None


def failure_reply(status: int, headers: Mapping[str, str], document: Any) -> Reply:
    """An answer with a status other than 200."""
    return Reply(
        status=status,
        headers=headers,
        reasoning={},
        content="",
        calls=(),
        finish=None,
        tokens=None,
        problems=(),
        error=error_message(document),
        document=document,
    )


def number(holder: Any, name: str) -> int | None:
    """A count in a JSON object, None where it is none."""
    value = holder.get(name) if isinstance(holder, dict) else None
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40
    return value if is_count else None


def text_of(holder: Any, name: str) -> str:
    """A text in a JSON object, empty where it is none."""
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, str) else ""


def read_event(event: bytes) -> tuple[dict[str, Any], str]:
    """The JSON object of an event, and what is wrong where it is none."""
    try:
        document = json.loads(event.decode("utf-8"))
    except UnicodeDecodeError:
        return {}, "an event is not UTF-8"
    except (ValueError, RecursionError):
        return {}, "an event is not JSON"
    return (document, "") if isinstance(document, dict) else ({}, "an event is no object")


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a JSON list; anything else holds none."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
