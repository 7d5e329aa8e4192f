"""Questions to one endpoint within a check's time, each kept as evidence."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from k31ctl.bench.ask import Answer
from k31ctl.bench.conformance.evidence import document_in, events_in, evidence_of
from k31ctl.bench.conformance.reply import OK, Reply
from k31ctl.bench.conformance.target import Target, with_key
from k31ctl.bench.conformance.verdicts import (
    Evidence,
    JudgedError,
    failed,
    inconclusive,
)
from k31ctl.bench.trouble import Trouble, TroubleError

BUSY: Final = (429, 503)
_LEAST_S: Final = 0.05
_TRIES: Final = 3
_PAUSE_S: Final = 1.0


class NotAnsweredError(JudgedError):
    """A question that must be answered was not, which is broken."""

    def __init__(self, purpose: str, reply: Reply) -> None:
        super().__init__(failed(f"{purpose}: {reply.refusal}"))


class Probe:
    """Puts the questions of one check; all end by ``ends_s`` of the monotonic clock."""

    def __init__(self, target: Target, *, ends_s: float) -> None:
        self._target, self._ends_s = target, ends_s
        self.api, self.settings, self.server = target.api, target.settings, target.server
        self.has_key = target.line.endpoint.token is not None
        self.evidence: list[Evidence] = []

    @property
    def left_s(self) -> float:
        """Seconds that this check still has."""
        return self._ends_s - time.monotonic()

    def try_ask(self, purpose: str, chat: Mapping[str, Any]) -> Reply:
        """Put a chat, and return whatever answers.

        Raises TroubleError where nothing does, JudgedError where the endpoint stays busy.
        """
        reply = self.post(purpose, self.body_of(chat), is_streamed=bool(chat.get("stream")))
        if reply.status in BUSY:
            raise JudgedError(inconclusive(f"{purpose}: the endpoint is busy, {reply.refusal}"))
        return reply

    def ask(self, purpose: str, chat: Mapping[str, Any]) -> Reply:
        """Put a chat that must be answered; raises NotAnsweredError, TroubleError."""
        reply = self.try_ask(purpose, chat)
        if reply.status != OK or reply.error is not None:
            raise NotAnsweredError(purpose, reply)
        return reply

    def ask_once(self, purpose: str, chat: Mapping[str, Any]) -> Reply:
        """The same, for a question whose answer several checks look at."""
        known = self._target.once.get(purpose)
        if known is not None:
            self.evidence.append(known[1])
            return known[0]
        reply = self.ask(purpose, chat)
        self._target.once[purpose] = (reply, self.evidence[-1])
        return reply

    def together(self, purpose: str, chats: Sequence[Mapping[str, Any]]) -> list[Reply]:
        """Put several chats at the same time; the first trouble is raised once all have ended."""
        found: list[Reply | Exception] = [TroubleError(Trouble.TIMEOUT, "no answer in time")] * len(
            chats
        )

        def put(place: int) -> None:
            try:
                found[place] = self.ask(f"{purpose} {place + 1}", chats[place])
            except (TroubleError, JudgedError) as error:
                found[place] = error

        _in_threads(put, len(chats), most_s=self.left_s + 1)
        for each in found:
            if isinstance(each, Exception):
                raise each
        return [each for each in found if isinstance(each, Reply)]

    def leave(self, purpose: str, chat: Mapping[str, Any], *, num: int, after_events: int) -> int:
        """Begin so many streams, hang up on each in the middle; returns how many had begun."""
        body = self.body_of({**chat, "stream": True})
        begun: list[int] = []

        def enough(content: bytes) -> bool:
            return content.count(b"data:") >= after_events

        def put(place: int) -> None:
            name, begun_s = f"{purpose} {place + 1}", time.monotonic()
            try:
                answer = self._send(name, body, enough=enough)
            except TroubleError:
                return
            self._note(name, body, answer, begun_s)
            if answer.status == OK:
                begun.append(place)

        _in_threads(put, num, most_s=self.left_s + 1)
        return len(begun)

    def post(
        self, purpose: str, body: bytes, *, is_streamed: bool = False, token: str | None = None
    ) -> Reply:
        """Send bytes as they are, with another key where one is given; raises TroubleError.

        Where the endpoint is busy it is asked again, a few times and as late as it says.
        """
        for _ in range(_TRIES - 1):
            reply = self._post(purpose, body, is_streamed=is_streamed, token=token)
            pause_s = _retry_after_s(reply)
            if reply.status not in BUSY or pause_s > self.left_s / 2:
                return reply
            time.sleep(pause_s)
        return self._post(purpose, body, is_streamed=is_streamed, token=token)

    def _post(self, purpose: str, body: bytes, *, is_streamed: bool, token: str | None) -> Reply:
        begun_s = time.monotonic()
        answer = self._send(purpose, body, token=token)
        kind = answer.headers.get("content-type", "").lower()
        if is_streamed and answer.status == OK and "text/event-stream" in kind:
            reply = self.api.streamed(answer.headers, events_in(answer.body))
        else:
            reply = self.api.whole(answer.status, answer.headers, document_in(answer.body))
        self._note(purpose, body, answer, begun_s, reply=reply)
        return reply

    def count(self, text: str) -> int | None:
        """Tokens of a text by the endpoint's own tokenizer, None where it has none."""
        counts = self._target.counts
        if text not in counts and self._target.counter.is_there:
            counts[text] = self._target.counter.count(text)
        return counts.get(text)

    def get_text(self, path: str) -> str | None:
        """The text at a path beside the API, None where there is none."""
        endpoint = self._target.line.endpoint
        try:
            answer = self._target.line.ask("GET", endpoint.root + path, timeout_s=self._timeout_s())
        except TroubleError:
            return None
        return answer.body.decode("utf-8", "replace") if answer.status == OK else None

    def body_of(self, chat: Mapping[str, Any]) -> bytes:
        """The body of a chat as it is sent; a field that is None is left out."""
        common = {
            "model": self.server.model,
            "max_tokens": self.settings.answer_tokens,
            **self.settings.common,
        }
        merged = {**common, **chat}
        given = {name: each for name, each in merged.items() if each is not None}
        return json.dumps(self.api.body(given)).encode()

    def _timeout_s(self) -> float:
        return max(self.left_s, _LEAST_S)

    def _send(
        self,
        purpose: str,
        body: bytes,
        *,
        enough: Callable[[bytes], bool] | None = None,
        token: str | None = None,
    ) -> Answer:
        begun_s = time.monotonic()
        line = self._target.line if token is None else with_key(self._target.line, token)
        path = line.endpoint.base + self.api.path
        try:
            return line.ask("POST", path, body, self._timeout_s(), enough)
        except TroubleError as trouble:
            self._note(purpose, body, None, begun_s, trouble=f"{trouble.kind}: {trouble.detail}")
            raise

    def _note(
        self,
        purpose: str,
        body: bytes,
        answer: Answer | None,
        begun_s: float,
        *,
        reply: Reply | None = None,
        trouble: str = "",
    ) -> None:
        self.evidence.append(
            evidence_of(
                self._target.redaction,
                purpose=purpose,
                path=self._target.line.endpoint.base + self.api.path,
                body=body,
                answer=answer,
                reply=reply,
                trouble=trouble,
                seconds=time.monotonic() - begun_s,
            )
        )


def _retry_after_s(reply: Reply) -> float:
    """When to ask again, in seconds from now."""
    text = reply.headers.get("retry-after", "")
    return float(text[:6]) if text.isascii() and text.isdigit() else _PAUSE_S


def _in_threads(put: Callable[[int], None], num: int, *, most_s: float) -> None:
    """Call for each number at the same time; what does not end is left behind."""
    threads = [threading.Thread(target=put, args=(place,), daemon=True) for place in range(num)]
    ends_s = time.monotonic() + most_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(ends_s - time.monotonic(), 0))
