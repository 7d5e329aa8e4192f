"""One answer while it is generated: tokens in, what a client may see out."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple, assert_never

from k31ctl.core.chat_format.output_parser import (
    Call,
    Channel,
    Content,
    Event,
    Marker,
    OutputParser,
    Reasoning,
    ReasoningWasContent,
)
from k31ctl.core.chat_format.stop_strings import StopStrings
from k31ctl.engine.service.generator import GeneratedToken
from k31ctl.engine.service.tasks import Task
from k31ctl.engine.tokenizer import TextStream, Tokenizer

_CUT: Final = "length"
_IMPOSSIBLE: Final = -9999.0  # JSON has no infinity; others send this


class Delta(NamedTuple):
    """What is new, and the probabilities of the tokens that brought it."""

    event: Event
    logprobs: list[dict[str, Any]]


class Reader:
    """Reads one answer; ``finish_reason`` is there once ``has_ended``."""

    def __init__(self, task: Task, tokenizer: Tokenizer) -> None:
        self._task, self._tokenizer = task, tokenizer
        self._text = TextStream(tokenizer)
        thinks = task.chat is not None and task.chat.is_thinking
        self._parser = OutputParser(is_thinking=thinks)
        self._stops = StopStrings(task.stops)
        self._logprobs: list[dict[str, Any]] = []
        self._has_met_end = False
        self.num_tokens = self.num_reasoning_tokens = self.num_calls = 0
        self.has_ended = False
        self.finish_reason = _CUT

    def feed(self, token: GeneratedToken) -> list[Delta]:
        """Return what one more token brings."""
        self.num_tokens += 1
        is_text = not self._tokenizer.is_special(token.id)
        if is_text and self._parser.is_reasoning:
            self.num_reasoning_tokens += 1
        if is_text and self._parser.is_content and token.logprob is not None:
            self._logprobs.append(self._logprob(token))
        self._has_met_end |= token.id == self._tokenizer.end_of_message
        deltas = self._deltas(self._events(self._text.feed(token.id)))
        if self._parser.channel is Channel.ENDED and not self._task.ignores_end:
            self._end(natural=True)
        return deltas

    def finish(self) -> list[Delta]:
        """Return what was held back; no token follows."""
        if self._stops.matched is not None:
            return []
        last = chain(self._events(self._text.finish()), self._parser.finish())
        deltas = self._deltas(last)
        if (held := self._stops.finish()) or self._logprobs:
            deltas.append(self._delta(Content(held)))
        if not self.has_ended:
            self._end(natural=self._has_met_end and not self._task.ignores_end)
        return deltas

    def _end(self, *, natural: bool) -> None:
        self.has_ended = True
        self.finish_reason = ("tool_calls" if self.num_calls else "stop") if natural else _CUT

    def _events(self, pieces: Iterable[str | Marker]) -> Iterator[Event]:
        """What pieces mean; a completion is its text and nothing else."""
        for piece in pieces:
            if self._task.chat is not None:
                yield from self._parser.feed(piece)
            elif isinstance(piece, str):
                yield Content(piece)

    def _deltas(self, events: Iterable[Event]) -> list[Delta]:
        return [delta for event in events for delta in self._seen(event)]

    def _seen(self, event: Event) -> Iterator[Delta]:
        """Apply stop strings to the answer, and to nothing else."""
        if self.has_ended:
            return
        match event:
            case Content(text):
                yield from self._content(text)
            case ReasoningWasContent(text):
                self.num_reasoning_tokens = 0
                kept = self._stops.feed(text)
                yield Delta(ReasoningWasContent(kept), [])
                self._heed_stop()
            case Reasoning():
                yield from self._held()
                yield Delta(event, [])
            case Call():
                yield from self._held()
                self.num_calls += 1
                yield Delta(event, [])
                if self._task.has_one_call:
                    self._end(natural=True)
            case _:
                assert_never(event)

    def _content(self, text: str) -> Iterator[Delta]:
        if kept := self._stops.feed(text):
            yield self._delta(Content(kept))
        self._heed_stop()

    def _held(self) -> Iterator[Delta]:
        if held := self._stops.finish():
            yield self._delta(Content(held))

    def _heed_stop(self) -> None:
        if self._stops.matched is not None:
            self._end(natural=True)
            self.finish_reason = "stop"

    def _delta(self, event: Event) -> Delta:
        logprobs, self._logprobs = self._logprobs, []
        return Delta(event, logprobs)

    def _logprob(self, token: GeneratedToken) -> dict[str, Any]:
        entry = self._entry(token.id, token.logprob)
        return {**entry, "top_logprobs": [self._entry(i, p) for i, p in token.top]}

    def _entry(self, token: int, logprob: float | None) -> dict[str, Any]:
        data = self._tokenizer.bytes_of(token)
        sent = _IMPOSSIBLE if logprob is None or not logprob > _IMPOSSIBLE else logprob
        return {"token": data.decode(errors="replace"), "logprob": sent, "bytes": list(data)}
