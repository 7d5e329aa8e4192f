"""What one event of a streamed answer says: text, reasoning, a tool call, usage, an error.

Reads chat completions and completions as OpenAI, vLLM (``reasoning``), SGLang, TokenSpeed,
TensorRT-LLM and Dynamo (``reasoning_content``) stream them.

Most events of a stream differ in nothing but one string. ``DeltaReader`` learns the bytes around
that string from an event that it has decoded and proves, by decoding a changed copy, that they are
what they seem. Later events are read by comparing those bytes: the same answer, much sooner.
"""

import json
import re
from enum import Enum
from typing import Any, Final

from k31ctl.bench.trouble import Trouble, TroubleError
from k31ctl.values import frozen


class Part(Enum):
    """What a piece of an answer belongs to."""

    REASONING = "reasoning"
    ANSWER = "answer"
    TOOL_CALL = "tool_call"


@frozen
class Usage:
    """Tokens as the server counted them; ``cached_tokens`` of the prompt were in its cache."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None
    cached_tokens: int | None


DONE: Final = b"[DONE]"
_REASONING_KEYS: Final = ("reasoning_content", "reasoning")
_PROBE: Final = "k31ctl probe"
_PLAIN_TEXT: Final = re.compile(rb'[^"\\\x00-\x1f\x7f-\xff]+')


class Shape:
    """The bytes of an event around the one string that changes.

    ``head`` and ``tail`` are those of the data, ``line_head`` and ``line_tail`` those on the wire.
    """

    __slots__ = ("head", "line_head", "line_tail", "part", "tail", "texts")

    def __init__(self, head: bytes, tail: bytes, part: Part, texts: list[str] | None) -> None:
        self.head, self.tail, self.part, self.texts = head, tail, part, texts
        self.line_head, self.line_tail = b"data: " + head, tail + b"\n\n"

    def fits(self, event: bytes) -> bool:
        """Whether an event has this shape; keeps its text where asked."""
        start, end = len(self.head), len(event) - len(self.tail)
        return (
            event.startswith(self.head)
            and event.endswith(self.tail)
            and start < end
            and self.is_plain(event[start:end])
        )

    def is_plain(self, text: bytes) -> bool:
        """Whether bytes are the content of a JSON string without escapes; keeps them where asked.

        Bytes of a letter outside ASCII may be ill-formed, and are left to the decoder.
        """
        if _PLAIN_TEXT.fullmatch(text) is None:
            return False
        if self.texts is not None:
            self.texts.append(text.decode())
        return True


class DeltaReader:
    """Reads the events of one stream.

    ``shape`` is what is known of its events, None as long as nothing is.

    ``texts`` holds what was said, by part, where it is kept; ``tool_calls`` the calls by index.
    """

    __slots__ = (
        "_has_begun",
        "_keeps",
        "finish_reason",
        "is_done",
        "reasoning_key",
        "shape",
        "texts",
        "tool_calls",
        "usage",
    )

    def __init__(self, *, keeps_text: bool) -> None:
        self._keeps = keeps_text
        self._has_begun = False
        self.shape: Shape | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.is_done = False
        self.reasoning_key: str | None = None
        self.texts: dict[Part, list[str]] = {Part.REASONING: [], Part.ANSWER: []}
        self.tool_calls: dict[int, dict[str, str]] = {}

    def read(self, event: bytes) -> Part | None:
        """Return what an event adds to, None where it adds nothing.

        Raises TroubleError where it is no JSON of the expected shape, or says that it failed.
        """
        shape = self.shape
        if shape is not None and shape.fits(event):
            return shape.part
        if event.strip() == DONE:
            self.is_done = True
            return None
        document = _document(event)
        if document.get("usage") is not None:
            self.usage = read_usage(document["usage"])
        choices = document.get("choices")
        if choices is None and "usage" in document:
            return None
        if not isinstance(choices, list):
            raise TroubleError(Trouble.BAD_JSON, f"an event without choices: {event[:80]!r}")
        part = None
        for choice in choices:
            part = self._choice(choice, event) or part
        if part in (Part.ANSWER, Part.REASONING) and len(choices) == 1:
            self._learn(event, document)
        return part

    def _choice(self, choice: Any, event: bytes) -> Part | None:
        if not isinstance(choice, dict):
            raise TroubleError(Trouble.BAD_JSON, f"a choice that is no object: {event[:80]!r}")
        if choice.get("finish_reason"):
            self.finish_reason = str(choice["finish_reason"])[:40]
        delta = choice.get("delta")
        if delta is None:
            delta = choice.get("message") or {"content": choice.get("text")}
        if not isinstance(delta, dict):
            raise TroubleError(Trouble.BAD_JSON, f"a delta that is no object: {event[:80]!r}")
        part = None
        for key in _REASONING_KEYS:
            if _is_text(delta.get(key)):
                self.reasoning_key, part = key, Part.REASONING
                self._keep(part, delta[key])
                break
        if _is_text(delta.get("content")):
            part = Part.ANSWER
            self._keep(part, delta["content"])
        if delta.get("tool_calls"):
            part = Part.TOOL_CALL
            self._keep_calls(delta["tool_calls"])
        return part

    def _keep(self, part: Part, text: str) -> None:
        if self._keeps:
            self.texts[part].append(text)

    def _keep_calls(self, calls: Any) -> None:
        """Add pieces of tool calls to the calls that they belong to."""
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise TroubleError(Trouble.BAD_JSON, "tool_calls is no list of objects")
        if not self._keeps:
            return
        for place, call in enumerate(calls):
            index = call.get("index", place)
            kept = self.tool_calls.setdefault(
                index if isinstance(index, int) else place, {"id": "", "name": "", "arguments": ""}
            )
            function = call.get("function") or {}
            if not isinstance(function, dict):
                raise TroubleError(Trouble.BAD_JSON, "a function that is no object")
            if call.get("id"):
                kept["id"] = str(call["id"])
            if function.get("name"):
                kept["name"] = str(function["name"])
            kept["arguments"] += str(function.get("arguments") or "")

    def _learn(self, event: bytes, document: dict[str, Any]) -> None:
        """Remember the bytes around the only string that changes, where they can be proven.

        The first event often carries a role as well, so it is the second that is learned from.
        """
        if not self._has_begun:
            self._has_begun = True
            return
        choice = document["choices"][0]
        delta = choice.get("delta")
        holder = choice if delta is None else delta
        names = ("text",) if delta is None else (*_REASONING_KEYS, "content")
        keys = [name for name in names if _is_text(holder.get(name))]
        if len(keys) != 1 or choice.get("finish_reason") or document.get("usage") is not None:
            return
        (key,) = keys
        raw = holder[key].encode("utf-8", "replace")
        if _PLAIN_TEXT.fullmatch(raw) is None:
            return
        quoted = b'"' + raw + b'"'
        at = event.rfind(quoted)
        head, tail = event[: at + 1], event[at + len(quoted) - 1 :]
        holder[key] = _PROBE
        try:
            proven = json.loads(head + _PROBE.encode() + tail) == document
        except ValueError:
            proven = False
        if at >= 0 and proven:
            part = Part.REASONING if key in _REASONING_KEYS else Part.ANSWER
            texts = self.texts[part] if self._keeps else None
            self.shape = Shape(head, tail, part, texts)


def read_usage(found: Any) -> Usage:
    """Return usage; raises TroubleError where it holds anything but counts."""
    if not isinstance(found, dict):
        raise TroubleError(Trouble.BAD_USAGE, "usage is no object")
    completion = found.get("completion_tokens_details") or {}
    prompt = found.get("prompt_tokens_details") or {}
    if not isinstance(completion, dict) or not isinstance(prompt, dict):
        raise TroubleError(Trouble.BAD_USAGE, "details of usage are no objects")
    reasoning, cached = completion.get("reasoning_tokens"), prompt.get("cached_tokens")
    return Usage(
        prompt_tokens=_count(found, "prompt_tokens"),
        completion_tokens=_count(found, "completion_tokens"),
        reasoning_tokens=None if reasoning is None else _count(completion, "reasoning_tokens"),
        cached_tokens=None if cached is None else _count(prompt, "cached_tokens"),
    )


def _count(holder: dict[str, Any], name: str) -> int:
    value = holder.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**40:
        raise TroubleError(Trouble.BAD_USAGE, f"{name} is {str(value)[:40]}")
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _document(event: bytes) -> dict[str, Any]:
    try:
        document = json.loads(event)
    except (ValueError, RecursionError):
        raise TroubleError(Trouble.BAD_JSON, f"not JSON: {event[:80]!r}") from None
    if not isinstance(document, dict):
        raise TroubleError(Trouble.BAD_JSON, f"not an object: {event[:80]!r}")
    if document.get("error") is not None:
        raise TroubleError(Trouble.ERROR_EVENT, str(document["error"])[:200])
    return document
