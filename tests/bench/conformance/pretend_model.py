"""What the pretended model says: right answers to the questions of the checks, without a model."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from k31ctl.core.chat_format.prompt import last_opener, prompt_segments, read_chat_request
from k31ctl.core.chat_format.segments import MEDIA_BEGIN, Segment

PICTURE_TOKENS = 361
_TOKEN = re.compile(r"\w{1,8}|[^\w\s]|\s+")
_CITIES = ("Oslo", "Bergen")


@dataclass
class Said:
    """One answer by its channels."""

    reasoning: str
    content: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def tokens_of(text: str) -> list[str]:
    return _TOKEN.findall(text)


def count(segments: Sequence[Segment]) -> int:
    total = 0
    for segment in segments:
        if not segment.is_special:
            total += len(tokens_of(segment.text))
        elif segment.text.startswith(MEDIA_BEGIN):
            total += 3 + len(tokens_of("image 512x512")) + PICTURE_TOKENS
        else:
            total += 1
    return total


def prompt_tokens(chat: Mapping[str, Any]) -> int:
    """As Moonshot counts: without the opener of the answer's first channel."""
    request = read_chat_request(chat)
    sizes = [(512, 512)] * len(request.images)
    return count(prompt_segments(request, image_sizes=sizes)) - count(last_opener(request))


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


def say(chat: Mapping[str, Any]) -> Said:
    messages = chat["messages"]
    question = next(text_of(m["content"]) for m in reversed(messages) if m["role"] == "user")
    said = Said(
        f"The user wants this, which I take word by word and then answer: {question[:80]!r}"
    )
    if messages[-1]["role"] == "tool":
        said.content = _from_results(messages, question)
    elif chat.get("tools") and (calls := _calls(chat, question)):
        said.calls = calls
    else:
        said.content = _text(chat, question)
    return said


def _from_results(messages: Sequence[Mapping[str, Any]], question: str) -> str:
    place = max(i for i, m in enumerate(messages) if m.get("tool_calls"))
    results = {m["tool_call_id"]: m["content"] for m in messages[place + 1 :]}
    told = {
        json.loads(call["function"]["arguments"])["city"]: results[call["id"]]
        for call in messages[place]["tool_calls"]
    }
    if "Oslo=CODE" in question:
        return ", ".join(f"{city}={told[city].split()[-1]}" for city in _CITIES)
    return str(told["Oslo"])


def _calls(chat: Mapping[str, Any], question: str) -> list[tuple[str, dict[str, Any]]]:
    choice = chat.get("tool_choice", "auto")
    if isinstance(choice, dict):
        return [(choice["function"]["name"], {"city": "Oslo"})]
    if choice == "none":
        return []
    if question.startswith("Look up"):
        return [("lookup_station", {"city": city}) for city in _CITIES if city in question]
    return [("convert_temperature", {"celsius": 20})] if choice == "required" else []


# A question by its beginning or a part of it, and what of it is the answer.
_ANSWERS = (
    (r"Write exactly this line: (.*)", None),
    (r"Repeat the following line[^\n]*\n(.*)", None),
    (r"My code word is (\S+)\.", None),
    (r".*number is (\d+)\.", None),
    (r"Count from", "\n".join(str(number) for number in range(1, 2000))),
    (r"What is 17 \+ 25", "42"),
)


def _text(chat: Mapping[str, Any], question: str) -> str:
    if chat.get("response_format"):
        return '{"city": "Hamar", "population": 28535}'
    if isinstance(chat["messages"][-1]["content"], list):
        return "Red."
    for pattern, answer in _ANSWERS:
        if found := re.match(pattern, question):
            return answer or found[1]
    return "Good morning."
