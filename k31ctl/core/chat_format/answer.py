"""A whole answer, put together from what a parser yields."""

from collections.abc import Iterable

from k31ctl.core.chat_format.output_parser import (
    Call,
    Content,
    Event,
    Reasoning,
    ReasoningWasContent,
)
from k31ctl.values import frozen


@frozen
class Answer:
    """What a model said, channel by channel."""

    reasoning: str
    content: str
    calls: tuple[Call, ...]


def whole_answer(events: Iterable[Event]) -> Answer:
    """Join events; reasoning that was the answer is the answer alone."""
    reasoning: list[str] = []
    content: list[str] = []
    calls: list[Call] = []
    for event in events:
        match event:
            case Reasoning(text):
                reasoning.append(text)
            case Content(text):
                content.append(text)
            case ReasoningWasContent(text):
                reasoning.clear()
                content.append(text)
            case Call():
                calls.append(event)
    return Answer(reasoning="".join(reasoning), content="".join(content), calls=tuple(calls))
