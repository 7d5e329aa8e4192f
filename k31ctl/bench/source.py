"""What each request says: synthetic prompts, rows of a data set, turns of an agent's session."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from k31ctl.bench.deltas import Part
from k31ctl.bench.endpoint import Endpoint
from k31ctl.bench.exchange import Exchange, Order
from k31ctl.bench.images import Images
from k31ctl.bench.prompts import Prompts
from k31ctl.catalog.dataset import DatasetRow
from k31ctl.core.arrivals import RequestSize
from k31ctl.values import frozen

_TOOL_WORDS: Final = 64
_CHAT, _PLAIN = "/chat/completions", "/completions"


@frozen
class Form:
    """What all requests of a run have in common; ``extra`` goes into the body as it is."""

    model: str
    is_chat: bool
    extra: Mapping[str, Any]

    def body(self, said: Any, output_tokens: int) -> bytes:
        """Return a body: ``said`` is the messages, or the prompt of a plain completion."""
        document = {
            "model": self.model,
            "messages" if self.is_chat else "prompt": said,
            "max_tokens": output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(document | dict(self.extra)).encode()


class Source(Protocol):
    """Where requests come from."""

    def order(self, *, number: int, user: int, size: RequestSize, last: Exchange | None) -> Order:
        """Return the next request of a user; ``last`` is the one before, None for the first."""
        ...

    def think_s(self, user: int) -> float:
        """Return how long a user waits before the next request, in seconds."""
        ...


class Synthetic:
    """Prompts of seeded words, each with so many images behind them."""

    def __init__(
        self,
        endpoint: Endpoint,
        form: Form,
        prompts: Prompts,
        *,
        images: Images | None,
        num_images: int,
    ) -> None:
        self._endpoint, self._form, self._prompts = endpoint, form, prompts
        self._images, self._num_images = images, num_images

    def order(self, *, number: int, user: int, size: RequestSize, last: Exchange | None) -> Order:
        """Return a request whose prompt is like no other before it, but for the trace's blocks."""
        tokens = size.prompt_tokens
        text = (
            self._prompts.of_blocks(size.blocks, tokens, number)
            if size.blocks
            else self._prompts.text(tokens, number)
        )
        content: Any = text
        if self._images is not None:
            first = number * self._num_images
            shown = [self._images.part(first + n) for n in range(self._num_images)]
            content = [{"type": "text", "text": text}, *shown]
        said = [{"role": "user", "content": content}] if self._form.is_chat else text
        return _order(self._endpoint, self._form, said, size, user=user, number=number)

    def think_s(self, user: int) -> float:
        """Return 0: the next request follows at once."""
        return 0.0


class Dataset:
    """Rows one after another, from the first again when they are used up."""

    def __init__(self, endpoint: Endpoint, form: Form, lines: Sequence[DatasetRow]) -> None:
        self._endpoint, self._form, self._lines = endpoint, form, lines

    def order(self, *, number: int, user: int, size: RequestSize, last: Exchange | None) -> Order:
        """Return the request of the next row."""
        line = self._lines[number % len(self._lines)]
        own = RequestSize(
            prompt_tokens=size.prompt_tokens,
            output_tokens=line.output_tokens or size.output_tokens,
            cached_tokens=0,
        )
        return _order(self._endpoint, self._form, line.said, own, user=user, number=number)

    def think_s(self, user: int) -> float:
        """Return 0: the next request follows at once."""
        return 0.0


class Sessions:
    """Agents: each answer, its reasoning and its tool calls go back with the next turn.

    A turn after a tool call brings the calls' results, any other a new user message. After
    ``num_turns`` turns, or a turn that failed, the user begins a new session.
    """

    def __init__(
        self, endpoint: Endpoint, form: Form, prompts: Prompts, *, num_turns: int, think_s: float
    ) -> None:
        self._endpoint, self._form, self._prompts = endpoint, form, prompts
        self._num_turns, self._think_s = num_turns, think_s
        self._talks: dict[int, list[dict[str, Any]]] = {}
        self._turns: dict[int, int] = {}

    def order(self, *, number: int, user: int, size: RequestSize, last: Exchange | None) -> Order:
        """Return the next turn of a user's session, or the first of a new one."""
        turn = self._turns.get(user, 0)
        if last is None or last.error is not None or turn >= self._num_turns:
            self._talks[user], turn = [], 0
        talk = self._talks[user]
        if turn:
            assert last is not None
            talk.append(_said_back(last))
            talk += _tool_results(last, self._prompts, number)
        if not talk or talk[-1]["role"] != "tool":
            tokens = size.prompt_tokens if not turn else max(size.prompt_tokens // 8, 1)
            talk.append({"role": "user", "content": self._prompts.text(tokens, number)})
        self._turns[user] = turn + 1
        return _order(self._endpoint, self._form, talk, size, user=user, number=number, keeps=True)

    def think_s(self, user: int) -> float:
        """Return the time between two turns of a session; a new session begins at once."""
        return self._think_s if 0 < self._turns.get(user, 0) < self._num_turns else 0.0


def _order(
    endpoint: Endpoint,
    form: Form,
    said: Any,
    size: RequestSize,
    *,
    user: int,
    number: int,
    keeps: bool = False,
) -> Order:
    path = endpoint.base + (_CHAT if form.is_chat else _PLAIN)
    body = form.body(said, size.output_tokens)
    return Order(
        content=endpoint.request("POST", path, body, accept="text/event-stream"),
        prompt_tokens=size.prompt_tokens,
        output_tokens=size.output_tokens,
        user=user,
        number=number,
        keeps_text=keeps,
    )


def _said_back(last: Exchange) -> dict[str, Any]:
    """The answer as a message, with its reasoning under the name that the server gave it."""
    deltas = last.deltas
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(deltas.texts[Part.ANSWER]) or None,
    }
    if deltas.reasoning_key is not None:
        message[deltas.reasoning_key] = "".join(deltas.texts[Part.REASONING])
    if deltas.tool_calls:
        message["tool_calls"] = [
            {
                "id": call["id"] or f"call_{index}",
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for index, call in sorted(deltas.tool_calls.items())
        ]
    return message


def _tool_results(last: Exchange, prompts: Prompts, number: int) -> list[dict[str, Any]]:
    return [
        {
            "role": "tool",
            "tool_call_id": call["id"] or f"call_{index}",
            "content": prompts.text(_TOOL_WORDS, number + index),
        }
        for index, call in sorted(last.deltas.tool_calls.items())
    ]
