"""Answers in the form of OpenAI's API: whole, and piece by piece."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from k31ctl.core.chat_format.answer import whole_answer
from k31ctl.core.chat_format.output_parser import Call, Content, Reasoning, ReasoningWasContent
from k31ctl.engine.service.reader import Delta, Reader
from k31ctl.engine.service.tasks import Task

DONE: Final = b"data: [DONE]\n\n"


class Writer:
    """Writes one answer; its head is the same in every piece."""

    def __init__(self, task: Task, *, name: str, request_id: str, created: int) -> None:
        self._task = task
        self._is_chat = task.chat is not None
        kind = "chat.completion" if self._is_chat else "text_completion"
        self._head = {"id": request_id, "created": created, "model": name}
        self._whole_kind = kind
        self._piece_kind = kind + (".chunk" if self._is_chat else "")
        self._num_calls = 0

    def first(self) -> Iterator[bytes]:
        """What a stream begins with."""
        if self._is_chat:
            yield self._choice({"delta": {"role": "assistant", "content": ""}})

    def piece(self, delta: Delta) -> Iterator[bytes]:
        """What a stream says of something new."""
        match delta.event:
            case Reasoning(text):
                yield self._choice({"delta": {"reasoning_content": text, "reasoning": text}})
            case Content(text) | ReasoningWasContent(text):
                yield from self._content(text, delta.logprobs)
            case Call():
                yield from self._call(delta.event)

    def last(self, reader: Reader) -> Iterator[bytes]:
        """What a stream ends with."""
        empty: dict[str, Any] = {"delta": {}} if self._is_chat else {"text": ""}
        yield self._choice(empty, reader.finish_reason)
        if self._task.includes_usage:
            usage = {"choices": [], "usage": self._usage(reader)}
            yield _event({**self._head, "object": self._piece_kind, **usage})
        yield DONE

    def whole(self, deltas: Iterable[Delta], reader: Reader) -> dict[str, Any]:
        """The answer as one document."""
        deltas = list(deltas)
        entries = [entry for delta in deltas for entry in delta.logprobs]
        answer = whole_answer(delta.event for delta in deltas)
        choice: dict[str, Any] = {"index": 0, "logprobs": self._logprobs(entries)}
        if self._is_chat:
            message: dict[str, Any] = {"role": "assistant", "content": answer.content or None}
            for name in ("reasoning_content", "reasoning"):
                message[name] = answer.reasoning or None
            if answer.calls:
                message["tool_calls"] = [self._made(call) for call in answer.calls]
            choice["message"] = message
        else:
            choice["text"] = answer.content
        choice["finish_reason"] = reader.finish_reason
        head = {**self._head, "object": self._whole_kind}
        return {**head, "choices": [choice], "usage": self._usage(reader)}

    def _content(self, text: str, entries: list[dict[str, Any]]) -> Iterator[bytes]:
        if not text and not entries:
            return
        said: dict[str, Any] = {"delta": {"content": text}} if self._is_chat else {"text": text}
        if entries:
            said["logprobs"] = self._logprobs(entries)
        yield self._choice(said)

    def _call(self, call: Call) -> Iterator[bytes]:
        index = self._num_calls
        made = self._made(call)
        function = {"name": call.name, "arguments": ""}
        begun = {"index": index, "id": made["id"], "type": "function", "function": function}
        yield self._choice({"delta": {"tool_calls": [begun]}})
        given = {"index": index, "function": {"arguments": call.arguments}}
        yield self._choice({"delta": {"tool_calls": [given]}})

    def _made(self, call: Call) -> dict[str, Any]:
        """A call with an id that no other call of the conversation has."""
        number = self._task.num_earlier_calls + self._num_calls
        self._num_calls += 1
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": f"{call.name}:{number}", "type": "function", "function": function}

    def _logprobs(self, entries: list[dict[str, Any]]) -> dict[str, Any] | None:
        if self._task.work.sampling.num_top_logprobs is None:
            return None
        if self._is_chat:
            return {"content": entries}
        tops = [{top["token"]: top["logprob"] for top in e["top_logprobs"]} for e in entries]
        return {
            "tokens": [entry["token"] for entry in entries],
            "token_logprobs": [entry["logprob"] for entry in entries],
            "top_logprobs": tops,
        }

    def _usage(self, reader: Reader) -> dict[str, Any]:
        num_prompt, num_made = self._task.num_prompt_tokens, reader.num_tokens
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_made,
            "total_tokens": num_prompt + num_made,
            "completion_tokens_details": {"reasoning_tokens": reader.num_reasoning_tokens},
        }

    def _choice(self, said: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, **said, "finish_reason": finish_reason}
        return _event({**self._head, "object": self._piece_kind, "choices": [choice]})


def failure(document: dict[str, Any]) -> Iterator[bytes]:
    """What a stream says when it cannot go on."""
    yield _event(document)
    yield DONE


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"
