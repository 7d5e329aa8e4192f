"""What the context holds: what cannot fit is refused before anything is built of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from k31ctl.engine.service.faults import ApiError

# The markers and the name in the tags around a message, a call or an argument.
LEAST_TOKENS_OF_ELEMENT: Final = 6
_MOST_CHARACTERS_PER_TOKEN: Final = 16
_MOST_SEPARATORS: Final = (2**16, 2**21)  # at least and at most, whatever the context holds


def least_tokens(body: Mapping[str, Any]) -> int:
    """Tokens that a chat's prompt has at least; an empty part counts as one.

    What is no list is refused where it is read.
    """
    messages = _entries(body.get("messages"))
    num_elements, num_parts = len(messages), len(_entries(body.get("tools")))
    for message in messages:
        if isinstance(message, dict):
            num_elements += len(_entries(message.get("tool_calls")))
            num_parts += len(_entries(message.get("content"))) + len(_entries(message.get("tools")))
    return num_elements * LEAST_TOKENS_OF_ELEMENT + num_parts


def _entries(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def refuse_too_many_values(body: bytes, max_model_tokens: int) -> None:
    """Refuse a body of more values than a request of this context has, before it is read as JSON.

    Reading 48 MiB of empty lists takes a gigabyte, and seconds in which nothing else runs. Commas
    and brackets inside of texts count as well: no text that fits has as many.
    """
    low, high = _MOST_SEPARATORS
    most = min(max(max_model_tokens * _MOST_CHARACTERS_PER_TOKEN, low), high)
    found = sum(body.count(separator) for separator in (b",", b"[", b"{"))
    if found > most:
        message = (
            f"the body has {found:,} commas and brackets, more than {most:,}, and this model's "
            f"context holds {max_model_tokens:,} tokens: send fewer values"
        )
        raise ApiError(400, message, code="context_length_exceeded")


def refuse_too_many(num_tokens: int, max_model_tokens: int) -> None:
    """Refuse a number of pieces that needs more tokens than there are."""
    if num_tokens > max_model_tokens:
        message = (
            f"messages, tools, parts and calls take at least {num_tokens:,} tokens, and this "
            f"model's context holds {max_model_tokens:,}: send fewer"
        )
        raise ApiError(400, message, param="messages", code="context_length_exceeded")


def refuse_too_much_text(num_characters: int, max_model_tokens: int, *, param: str) -> None:
    """Refuse at once what would take long to encode and then not fit."""
    most = max_model_tokens * _MOST_CHARACTERS_PER_TOKEN
    if num_characters > most:
        message = (
            f"the prompt has {num_characters:,} characters, more than "
            f"{_MOST_CHARACTERS_PER_TOKEN} for each of the {max_model_tokens:,} tokens that "
            "this model's context holds: shorten the prompt"
        )
        raise ApiError(400, message, param=param, code="context_length_exceeded")


def refuse_too_long(num_tokens: int, max_model_tokens: int, *, param: str) -> int:
    """Return the room for an answer, in tokens."""
    room = max_model_tokens - num_tokens
    if room < 1:
        message = (
            f"the prompt has {num_tokens:,} tokens, and this model's context holds "
            f"{max_model_tokens:,} with the answer: shorten the prompt"
        )
        raise ApiError(400, message, param=param, code="context_length_exceeded")
    return room
