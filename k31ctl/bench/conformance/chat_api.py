"""Chat completions, as OpenAI documents them and as Kimi's reasoning comes with them."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from k31ctl.bench.conformance.reply import (
    OK,
    Call,
    Reply,
    Tokens,
    error_message,
    failure_reply,
    number,
    objects,
    read_event,
    text_of,
)

REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
_DONE: Final = b"[DONE]"


class ChatApi:
    """``/chat/completions``."""

    name = "chat"
    path = "/chat/completions"

    def body(self, chat: Mapping[str, Any]) -> dict[str, Any]:
        """The chat itself; a stream is asked for its usage."""
        body = {name: value for name, value in chat.items() if value is not None}
        if body.get("stream"):
            body.setdefault("stream_options", {"include_usage": True})
        return body

    def whole(self, status: int, headers: Mapping[str, str], document: Any) -> Reply:
        """Read a ``chat.completion``."""
        if status != OK:
            return failure_reply(status, headers, document)
        problems = []
        choices = objects(document.get("choices")) if isinstance(document, dict) else []
        if not choices:
            problems.append("there is no choice in the answer")
        choice = choices[0] if choices else {}
        message = choice.get("message")
        if not isinstance(message, dict):
            problems.append("the choice has no message")
            message = {}
        if isinstance(document, dict) and document.get("object") != "chat.completion":
            problems.append(f"object is {document.get('object')!r}, not 'chat.completion'")
        return Reply(
            status=status,
            headers=headers,
            reasoning={name: text_of(message, name) for name in REASONING_FIELDS},
            content=text_of(message, "content"),
            calls=tuple(_call(entry) for entry in objects(message.get("tool_calls"))),
            finish=text_of(choice, "finish_reason") or None,
            tokens=read_tokens(document.get("usage") if isinstance(document, dict) else None),
            problems=tuple(problems),
            error=error_message(document),
            document=document,
        )

    def streamed(self, headers: Mapping[str, str], events: Iterable[bytes]) -> Reply:
        """Read ``chat.completion.chunk`` events up to ``[DONE]``."""
        reader = _StreamReader()
        for event in events:
            reader.take(event)
        return reader.reply(headers)


class _StreamReader:
    """One stream, and what about its form is not as documented."""

    def __init__(self) -> None:
        self._reasoning = dict.fromkeys(REASONING_FIELDS, "")
        self._content = ""
        self._calls: dict[int, dict[str, str]] = {}
        self._finishes: list[str] = []
        self._tokens: Tokens | None = None
        self._heads: set[str] = set()
        self._problems: list[str] = []
        self._error: str | None = None
        self._is_done = self._has_role = False

    def take(self, event: bytes) -> None:
        """Read one event."""
        if self._is_done:
            self._problem("an event follows [DONE]")
        if event.strip() == _DONE:
            self._is_done = True
            return
        document, problem = read_event(event)
        if problem:
            self._problem(problem)
            return
        if document.get("error") is not None:
            self._error = error_message(document) or "an error without a message"
            return
        self._heads.add(repr([document.get(name) for name in ("id", "model")]))
        self._tokens = read_tokens(document.get("usage")) or self._tokens
        for choice in objects(document.get("choices")):
            self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        if self._finishes and any(delta.values()):
            self._problem("more is said after finish_reason")
        self._has_role |= delta.get("role") == "assistant"
        for name in REASONING_FIELDS:
            text = text_of(delta, name)
            if text and self._content:
                self._problem("reasoning comes after content")
            self._reasoning[name] += text
        self._content += text_of(delta, "content")
        for place, piece in enumerate(objects(delta.get("tool_calls"))):
            self._call_piece(piece, place)
        if finish := text_of(choice, "finish_reason"):
            self._finishes.append(finish)

    def _call_piece(self, piece: dict[str, Any], place: int) -> None:
        index = number(piece, "index")
        if index is None:
            self._problem("a piece of a tool call has no index")
            index = place
        function = piece.get("function")
        name, arguments = text_of(function, "name"), text_of(function, "arguments")
        kept = self._calls.get(index)
        if kept is None:
            if index != len(self._calls):
                self._problem(f"tool call {len(self._calls)} has index {index}")
            if not (text_of(piece, "id") and name):
                self._problem("a tool call begins without id and name")
            kept = self._calls[index] = {"id": "", "name": "", "arguments": ""}
        elif text_of(piece, "id") not in ("", kept["id"]):
            self._problem("the id of a tool call changes")
        kept["id"] = kept["id"] or text_of(piece, "id")
        kept["name"] = kept["name"] or name
        kept["arguments"] += arguments

    def reply(self, headers: Mapping[str, str]) -> Reply:
        """The whole of it."""
        if self._error is None:
            self._check_end()
        return Reply(
            status=OK,
            headers=headers,
            reasoning=self._reasoning,
            content=self._content,
            calls=tuple(Call(**kept) for _, kept in sorted(self._calls.items())),
            finish=self._finishes[-1] if self._finishes else None,
            tokens=self._tokens,
            problems=tuple(dict.fromkeys(self._problems)),
            error=self._error,
        )

    def _check_end(self) -> None:
        if not self._is_done:
            self._problem("the stream ends without [DONE]")
        if len(self._finishes) != 1:
            self._problem(f"finish_reason comes {len(self._finishes)} times")
        if len(self._heads) > 1:
            self._problem("id and model are not the same in every chunk")
        if self._tokens is None:
            self._problem("usage was asked for and does not come")
        if not self._has_role:
            self._problem("no chunk says role assistant")

    def _problem(self, text: str) -> None:
        self._problems.append(text)


def read_tokens(usage: Any) -> Tokens | None:
    """Usage of a chat completion, None where it is absent or no counts."""
    prompt, completion = number(usage, "prompt_tokens"), number(usage, "completion_tokens")
    if prompt is None or completion is None:
        return None
    reasoning = number(usage.get("completion_tokens_details"), "reasoning_tokens")
    if reasoning is None:
        reasoning = number(usage, "reasoning_tokens")
    return Tokens(
        prompt=prompt,
        completion=completion,
        total=number(usage, "total_tokens"),
        reasoning=reasoning,
    )


def _call(entry: dict[str, Any]) -> Call:
    function = entry.get("function")
    return Call(
        id=text_of(entry, "id"),
        name=text_of(function, "name"),
        arguments=text_of(function, "arguments"),
    )
