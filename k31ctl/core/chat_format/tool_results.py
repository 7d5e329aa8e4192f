"""Tool results in the order of the calls they answer, each with its tool's name and number.

Ids never reach the prompt: a run of results is matched with the calls of the assistant's message
before it, or stays as it was sent where one of the run has no match.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import groupby

from k31ctl.core.chat_format import json_fields as fields
from k31ctl.core.chat_format.messages import Message, ToolCall


def in_call_order(messages: Sequence[Message]) -> Iterator[tuple[Message, int]]:
    """Yield each message with its number among the results since the last answer; others have 0."""
    calls: tuple[ToolCall, ...] = ()
    num_results = 0
    for is_tool, run in groupby(messages, key=lambda message: message.role == "tool"):
        if not is_tool:
            for message in run:
                if message.role == "assistant":
                    calls, num_results = message.tool_calls, 0
                yield message, 0
            continue
        for message in _sorted(tuple(run), calls):
            num_results += 1
            yield _named(message, calls, num_results), num_results


def _sorted(run: tuple[Message, ...], calls: Sequence[ToolCall]) -> tuple[Message, ...]:
    places: dict[str, int] = {}
    for place, call in enumerate(calls):
        if call.id is not None:
            places.setdefault(call.id, place)
    matched = [(places[m.call_id], m) for m in run if m.call_id in places]
    if len(matched) != len(run):
        return run
    matched.sort(key=lambda pair: pair[0])
    return tuple(dataclasses.replace(m, tool=calls[place].name) for place, m in matched)


def _named(message: Message, calls: Sequence[ToolCall], number: int) -> Message:
    if message.tool:
        return message
    if number > len(calls):
        remedy = "send tool_call_id as the call's id, or the tool's name"
        raise fields.bad_field(message.where, "answers no tool call", remedy)
    return dataclasses.replace(message, tool=calls[number - 1].name)
