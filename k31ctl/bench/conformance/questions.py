"""What the checks ask: short questions whose right answers are known."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

Chat = dict[str, Any]

SUM: Final = "What is 17 + 25? Answer with the number only."
SUM_ANSWER: Final = "42"
FIRST: Final = "a short question"
FIRST_STREAMED: Final = "the same question, streamed"
TOOL: Final = "a question for a tool"
FEW_TOKENS: Final = 16  # for what is counted and not read

LOOKUP: Final[Chat] = {
    "type": "function",
    "function": {
        "name": "lookup_station",
        "description": "Return the code of a city's weather station.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city"}},
            "required": ["city"],
        },
    },
}
CONVERT: Final[Chat] = {
    "type": "function",
    "function": {
        "name": "convert_temperature",
        "description": "Convert degrees Celsius to Fahrenheit.",
        "parameters": {
            "type": "object",
            "properties": {"celsius": {"type": "number"}},
            "required": ["celsius"],
        },
    },
}
LOOK_UP_OSLO: Final = "Look up the station code of Oslo. Use the tool lookup_station."
LOOK_UP_BOTH: Final = (
    "Look up the station codes of Oslo and of Bergen. Call lookup_station for both at once, "
    "before you answer."
)
TOWN: Final[Chat] = {
    "type": "json_schema",
    "json_schema": {
        "name": "town",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "population": {"type": "integer"}},
            "required": ["city", "population"],
            "additionalProperties": False,
        },
    },
}
# Words that nearly every tokenizer has as one token or few, and that add up to no sentence.
WORDS: Final = (
    "amber", "birch", "copper", "dawn", "ember", "fern", "granite", "harbor",
    "island", "jade", "kettle", "lantern", "maple", "north", "ocean", "pebble",
)  # fmt: skip


def user(text: Any) -> Chat:
    """A user's message."""
    return {"role": "user", "content": text}


def asked(text: Any, **fields: Any) -> Chat:
    """A chat of one question."""
    return {"messages": [user(text)], **fields}


def words(num: int) -> str:
    """So many words, the same again and again."""
    return " ".join(WORDS[place % len(WORDS)] for place in range(num))


def call(call_id: str, city: str, name: str = "lookup_station") -> Chat:
    """A tool call of an earlier answer."""
    arguments = json.dumps({"city": city})
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def result(call_id: str, text: str) -> Chat:
    """What a tool returned."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def called(
    question: str, calls: Sequence[Mapping[str, Any]], results: Sequence[Chat], **answer: Any
) -> list[Chat]:
    """A question, an answer that calls tools, and their results."""
    said = {"role": "assistant", "content": "", "tool_calls": list(calls), **answer}
    return [user(question), said, *results]
