"""Messages, as Anthropic documents them: blocks of thinking, text and tool use."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from k31ctl.bench.conformance.messages_body import messages_body
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

_FINISHES: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}
_DELTAS: Final = {"thinking_delta": "thinking", "text_delta": "text"}
_CACHED: Final = ("cache_read_input_tokens", "cache_creation_input_tokens")


class MessagesApi:
    """``/messages``."""

    name = "messages"
    path = "/messages"

    def body(self, chat: Mapping[str, Any]) -> dict[str, Any]:
        """The chat in Anthropic's words."""
        return messages_body(chat)

    def whole(self, status: int, headers: Mapping[str, str], document: Any) -> Reply:
        """Read a ``message``."""
        if status != OK:
            return failure_reply(status, headers, document)
        blocks = objects(document.get("content")) if isinstance(document, dict) else []
        problems = _order_problems([text_of(block, "type") for block in blocks])
        if text_of(document, "type") != "message":
            problems.append("type is not 'message'")
        if text_of(document, "role") != "assistant":
            problems.append("role is not 'assistant'")
        return _reply(
            headers,
            blocks=blocks,
            stop_reason=text_of(document, "stop_reason"),
            usage=document.get("usage") if isinstance(document, dict) else None,
            problems=problems,
            error=error_message(document),
            document=document,
        )

    def streamed(self, headers: Mapping[str, str], events: Iterable[bytes]) -> Reply:
        """Read the events from ``message_start`` to ``message_stop``."""
        reader = _StreamReader()
        for event in events:
            reader.take(event)
        return reader.reply(headers)


class _StreamReader:
    """One stream, and what about its form is not as documented."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self._open: set[int] = set()
        self._stop_reason = ""
        self._usage: dict[str, Any] = {}
        self._problems: list[str] = []
        self._error: str | None = None
        self._has_begun = self._is_done = False

    def take(self, event: bytes) -> None:
        """Read one event."""
        document, problem = read_event(event)
        if problem:
            self._problems.append(problem)
            return
        kind = text_of(document, "type")
        if self._is_done:
            self._problems.append("an event follows message_stop")
        if kind not in ("message_start", "ping", "error") and not self._has_begun:
            self._problems.append("the stream does not begin with message_start")
        match kind:
            case "message_start":
                self._has_begun = True
                self._count(document.get("message"))
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                self._block(kind, document)
            case "message_delta":
                self._stop_reason = text_of(document.get("delta"), "stop_reason")
                self._count(document)
            case "message_stop":
                self._is_done = True
            case "error":
                self._error = error_message(document) or "an error without a message"
            case "ping":
                pass
            case _:
                self._problems.append(f"an event of the unknown type {kind[:40]!r}")

    def _count(self, holder: Any) -> None:
        usage = holder.get("usage") if isinstance(holder, dict) else None
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _block(self, kind: str, document: dict[str, Any]) -> None:
        index = number(document, "index")
        if index is None:
            self._problems.append("an event of a block has no index")
            return
        if kind == "content_block_start":
            block = document.get("content_block")
            if index != len(self._blocks):
                self._problems.append(f"block {len(self._blocks)} has index {index}")
            self._blocks[index] = dict(block) if isinstance(block, dict) else {}
            self._open.add(index)
        elif index not in self._open:
            self._problems.append("a block goes on that has not begun or has ended")
        elif kind == "content_block_stop":
            self._open.remove(index)
        else:
            self._delta(self._blocks[index], document.get("delta"))

    def _delta(self, block: dict[str, Any], delta: Any) -> None:
        kind = text_of(delta, "type")
        if kind in _DELTAS:
            name = _DELTAS[kind]
            if text_of(block, "type") != name:
                self._problems.append(f"a {kind} in a block of {text_of(block, 'type') or 'none'}")
            block[name] = text_of(block, name) + text_of(delta, name)
        elif kind == "input_json_delta":
            block["json"] = text_of(block, "json") + text_of(delta, "partial_json")

    def reply(self, headers: Mapping[str, str]) -> Reply:
        """The whole of it."""
        blocks = [block for _, block in sorted(self._blocks.items())]
        if self._error is None:
            if not self._is_done:
                self._problems.append("the stream ends without message_stop")
            if self._open:
                self._problems.append("a block never ends")
            self._problems += _order_problems([text_of(block, "type") for block in blocks])
        return _reply(
            headers,
            blocks=blocks,
            stop_reason=self._stop_reason,
            usage=self._usage,
            problems=self._problems,
            error=self._error,
            document=None,
        )


def _reply(
    headers: Mapping[str, str],
    *,
    blocks: list[dict[str, Any]],
    stop_reason: str,
    usage: Any,
    problems: list[str],
    error: str | None,
    document: Any,
) -> Reply:
    return Reply(
        status=OK,
        headers=headers,
        reasoning={"thinking": "".join(text_of(block, "thinking") for block in blocks)},
        content="".join(
            text_of(block, "text") for block in blocks if text_of(block, "type") == "text"
        ),
        calls=tuple(_call(block) for block in blocks if text_of(block, "type") == "tool_use"),
        finish=_FINISHES.get(stop_reason, stop_reason) or None,
        tokens=_tokens(usage),
        problems=tuple(dict.fromkeys(problems)),
        error=error,
        document=document,
    )


def _call(block: dict[str, Any]) -> Call:
    arguments = text_of(block, "json") or json.dumps(block.get("input"))
    return Call(id=text_of(block, "id"), name=text_of(block, "name"), arguments=arguments)


def _tokens(usage: Any) -> Tokens | None:
    prompt, completion = number(usage, "input_tokens"), number(usage, "output_tokens")
    if prompt is None or completion is None:
        return None
    cached = sum(number(usage, name) or 0 for name in _CACHED)
    return Tokens(prompt=prompt + cached, completion=completion)


def _order_problems(kinds: list[str]) -> list[str]:
    """Blocks come as thinking, text, tool use."""
    places = {"thinking": 0, "redacted_thinking": 0, "text": 1, "tool_use": 2}
    found = [places[kind] for kind in kinds if kind in places]
    if found != sorted(found):
        return [f"blocks come as {', '.join(kinds)}"]
    return []
