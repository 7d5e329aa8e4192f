"""Services that break one part of the contract each."""

from collections.abc import Iterator, Mapping
from typing import Any

from k31ctl.core.chat_format.system_notes import thinking_effort
from tests.bench.conformance.pretend_model import Said, count, say, text_of
from tests.bench.conformance.pretend_service import EFFORTS, KEY, FaultError, Service

Chat = Mapping[str, Any]
NOTE_TOKENS = count(tuple(thinking_effort("max")))
MARKS = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")


def question(chat: Chat) -> str:
    return text_of(chat["messages"][-1]["content"])


class WrongObject(Service):
    def whole(self, *given: Any) -> dict[str, Any]:
        return {**super().whole(*given), "object": "completion"}


class NoFinish(Service):
    def whole(self, *given: Any) -> dict[str, Any]:
        document = super().whole(*given)
        if document["choices"][0]["message"]["content"] == "42":
            del document["choices"][0]["finish_reason"]
        return document


class NoDone(Service):
    def events(self, *given: Any) -> Iterator[bytes]:
        return (event for event in super().events(*given) if b"[DONE]" not in event)


class FinishTwice(Service):
    def events(self, *given: Any) -> Iterator[bytes]:
        for event in super().events(*given):
            yield event
            if b'"finish_reason": "stop"' in event:
                yield event


class LosesTheEndOfStreams(Service):
    def events(self, chat: Chat, said: Said, *given: Any) -> Iterator[bytes]:
        kept = Said(said.reasoning, said.content[:-1], said.calls)
        return super().events(chat, kept, *given)


class LeaksMarks(Service):
    def say(self, chat: Chat) -> Said:
        said = super().say(chat)
        if "17 + 25" in question(chat):
            said.content += "<|close|>message<|sep|>"
        return said


class TwoReasonings(Service):
    def reasoning_fields(self, text: str) -> dict[str, Any]:
        return {"reasoning_content": text, "reasoning": text[:1]}


class AnswerTakenForReasoning(Service):
    def say(self, chat: Chat) -> Said:
        said = super().say(chat)
        if "17 + 25" in question(chat) and not chat.get("logprobs"):
            return Said(said.reasoning + said.content)
        return said


class CutReasoningIsContent(Service):
    def cut(self, said: Said, chat: Chat) -> tuple[Said, str, int, int]:
        kept, finish, made, thought = super().cut(said, chat)
        if finish == "length" and not kept.content:
            kept = Said("", kept.reasoning)
        return kept, finish, made, thought


class WrongTotal(Service):
    def usage(self, *given: Any) -> dict[str, Any]:
        found = super().usage(*given)
        return {**found, "total_tokens": found["total_tokens"] + 1}


class PassesTheLimit(Service):
    def usage(self, prompt: int, completion: int, reasoning: int) -> dict[str, Any]:
        return super().usage(prompt, completion + 5 * (completion == 16), reasoning)


class CallsEndWithStop(Service):
    def whole(self, *given: Any) -> dict[str, Any]:
        document = super().whole(*given)
        if document["choices"][0]["finish_reason"] == "tool_calls":
            document["choices"][0]["finish_reason"] = "stop"
        return document


class CallsWithoutIdsInStreams(Service):
    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        for call in delta.get("tool_calls", ()):
            call.pop("id", None)
        return super().chunk(delta, finish)


class CallsAgainstTheChoice(Service):
    def say(self, chat: Chat) -> Said:
        if chat.get("tool_choice") == "none":
            chat = {**chat, "tool_choice": "auto"}
        return super().say(chat)


class IgnoresRequired(Service):
    def say(self, chat: Chat) -> Said:
        if chat.get("tool_choice") == "required":
            chat = {**chat, "tool_choice": "auto"}
        return super().say(chat)


class LosesResults(Service):
    def prompt_tokens(self, chat: Chat) -> int:
        messages = chat["messages"] if isinstance(chat.get("messages"), list) else None
        if messages is None or not all(isinstance(m, dict) for m in messages):
            return super().prompt_tokens(chat)
        kept = [{**m, "content": ""} if m.get("role") == "tool" else m for m in messages]
        return super().prompt_tokens({**chat, "messages": kept})

    def say(self, chat: Chat) -> Said:
        if chat["messages"][-1]["role"] == "tool":
            return Said("There is nothing in it, so that I do not know what to say now.", "Well.")
        return super().say(chat)


class ResultsByPlace(Service):
    def say(self, chat: Chat) -> Said:
        messages = chat["messages"]
        results = [m for m in messages if m["role"] == "tool"]
        if len(results) < 2:
            return super().say(chat)
        ids = [call["id"] for call in messages[1]["tool_calls"]]
        named = [{**m, "tool_call_id": i} for m, i in zip(results, ids, strict=True)]
        return super().say({**chat, "messages": [*messages[:2], *named]})


class OneIdForAllCalls(Service):
    def call_id(self, name: str, place: int) -> str:
        return name


class MixesArguments(Service):
    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        for call in delta.get("tool_calls", ()):
            if call["function"].get("arguments"):
                call["index"] = 0
        return super().chunk(delta, finish)


class ForgetsReasoning(Service):
    def prompt_tokens(self, chat: Chat) -> int:
        messages = chat.get("messages")
        if isinstance(messages, list) and all(isinstance(m, dict) for m in messages):
            hidden = ("reasoning", "reasoning_content")
            messages = [{k: v for k, v in m.items() if k not in hidden} for m in messages]
        return super().prompt_tokens({**chat, "messages": messages})


class NeedsReasoning(Service):
    def check(self, chat: Chat) -> None:
        super().check(chat)
        for message in chat["messages"]:
            given = message.get("reasoning") or message.get("reasoning_content")
            if message["role"] == "assistant" and not given:
                raise FaultError(500, "an answer without reasoning")


class RefusesHigh(Service):
    def check_effort(self, effort: Any) -> None:
        super().check_effort(None if effort != "high" else "refused")


class TakesAnyEffort(Service):
    def check_effort(self, effort: Any) -> None:
        pass

    def prompt_tokens(self, chat: Chat) -> int:
        effort = chat.get("reasoning_effort")
        known = {**chat, "reasoning_effort": effort if effort in EFFORTS else "max"}
        return super().prompt_tokens(known)


class NoNoteWithoutEffort(Service):
    def prompt_tokens(self, chat: Chat) -> int:
        missing = 0 if chat.get("reasoning_effort") else NOTE_TOKENS
        return super().prompt_tokens(chat) - missing


class NoNote(Service):
    def prompt_tokens(self, chat: Chat) -> int:
        return super().prompt_tokens(chat) - NOTE_TOKENS


class NoNoteOfFormats(Service):
    def prompt_tokens(self, chat: Chat) -> int:
        return super().prompt_tokens({**chat, "response_format": None})


class CountsTheOpener(Service):
    def prompt_tokens(self, chat: Chat) -> int:
        return super().prompt_tokens(chat) + 3


class TakesMarksFromUsers(Service):
    def prompt_tokens(self, chat: Chat) -> int:
        found = super().prompt_tokens(chat)
        for mark in MARKS:
            num = question(chat).count(mark)
            found -= num * (len(mark.replace("_", " ").split()) + 3)
        return found


class IgnoresSchemas(Service):
    kind = "json_schema"

    def say(self, chat: Chat) -> Said:
        said = say(chat)
        if (chat.get("response_format") or {}).get("type") == self.kind:
            said.content = "Hamar, with 28,535 people."
        return said


class IgnoresJsonObject(IgnoresSchemas):
    kind = "json_object"


class GoesPastStops(Service):
    def stopped(self, said: Said, chat: Chat) -> Said:
        return said


class StopsReasoning(Service):
    def stopped(self, said: Said, chat: Chat) -> Said:
        for stop in chat.get("stop") or ():
            if stop in said.reasoning:
                return Said(said.reasoning.partition(stop)[0])
        return said


class NoLogprobs(Service):
    def logprobs(self, chat: Chat, content: str) -> dict[str, Any]:
        return {}


class SplitsLetters(Service):
    def events(self, chat: Chat, said: Said, *given: Any) -> Iterator[bytes]:
        content = said.content.replace("漢", "\ufffd\ufffd")
        return super().events(chat, Said(said.reasoning, content, said.calls), *given)


class FailsOnControls(Service):
    def check(self, chat: Chat) -> None:
        super().check(chat)
        if "\x07" in question(chat):
            raise FaultError(500, "what is this")


class FailsOnSurrogates(Service):
    def check(self, chat: Chat) -> None:
        super().check(chat)
        if "\ud83d" in question(chat):
            raise FaultError(500, "cannot encode")


class SmallPictures(Service):
    def prompt_tokens(self, chat: Chat) -> int:
        found = super().prompt_tokens(chat)
        has_picture = "image_url" in str(chat["messages"][-1]["content"])
        return found - 105 if has_picture else found


class FailsOnBadJson(Service):
    def parse(self, raw: bytes) -> dict[str, Any]:
        try:
            return super().parse(raw)
        except FaultError as fault:
            raise FaultError(500, str(fault)) from None


class TakesAnyTemperature(Service):
    def check(self, chat: Chat) -> None:
        super().check({**chat, "temperature": 1.0})


class AnyKey(Service):
    key = KEY

    def check_key(self, headers: Mapping[str, str]) -> None:
        pass


class MixesConversations(Service):
    first: str | None = None

    def say(self, chat: Chat) -> Said:
        said = super().say(chat)
        if question(chat).startswith("My code word"):
            with self.lock:
                self.first = self.first or said.content
            said.content = self.first
        return said


class KeepsTheDead(Service):
    def hung_up(self) -> None:
        self.closing.wait()


class CutsPrompts(Service):
    def check_length(self, num_tokens: int) -> None:
        pass


class ReadsHalf(Service):
    def usage(self, prompt: int, completion: int, reasoning: int) -> dict[str, Any]:
        return super().usage(min(prompt, 4000), completion, reasoning)
