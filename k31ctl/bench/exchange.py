"""One request and its streamed answer: what was sent, when each event came, how it ended."""

from array import array
from typing import Final

from k31ctl.bench.deltas import DeltaReader, Part
from k31ctl.bench.http1 import ResponseReader
from k31ctl.bench.sse import EventSplitter
from k31ctl.bench.trouble import Trouble, TroubleError
from k31ctl.values import frozen

_OK: Final = 200
_MOST_BODY_BYTES: Final = 64 * 2**20
_MOST_ERROR_BYTES: Final = 400
_EVENTS_PER_TOKEN: Final = 4  # beyond this many events for each token asked for, it never ends
_SPARE_EVENTS: Final = 1000


@frozen
class Order:
    """The bytes to send and what is expected; ``user`` is the sender in a closed loop."""

    content: bytes
    prompt_tokens: int
    output_tokens: int
    user: int
    number: int
    keeps_text: bool = False


class Exchange:
    """A request in flight, then done; times are of the client's monotonic clock, in seconds.

    It was to be sent at ``due_s``. Latencies count from ``since_s``: that, where requests arrive
    whatever the service does, else when it was sent.

    ``num_events`` counts the events that carried tokens, and ``gaps`` holds the waits between them
    as 32-bit floats.
    """

    __slots__ = (
        "_body",
        "_deltas",
        "_events",
        "_is_stream",
        "_most_events",
        "_response",
        "detail",
        "due_s",
        "ended_s",
        "error",
        "first_answer_s",
        "first_event_s",
        "first_reasoning_s",
        "gaps",
        "heard_s",
        "last_s",
        "num_events",
        "num_reasoning_events",
        "num_tool_events",
        "order",
        "retry_after_s",
        "sent_s",
        "since_s",
        "status",
    )

    def __init__(self, order: Order, *, due_s: float, since_s: float) -> None:
        self.order, self.due_s, self.since_s = order, due_s, since_s
        self._most_events = order.output_tokens * _EVENTS_PER_TOKEN + _SPARE_EVENTS
        self.error: str | None = None
        self.detail = ""
        self.retry_after_s: float | None = None
        self.restart()

    def restart(self) -> None:
        """Forget the answer so far, for a request that is sent again on another connection."""
        self._response = ResponseReader()
        self._events = EventSplitter()
        self._deltas = DeltaReader(keeps_text=self.order.keeps_text)
        self._body = bytearray()
        self._is_stream: bool | None = None
        self.sent_s = self.first_event_s = self.last_s = self.ended_s = self.heard_s = 0.0
        self.first_reasoning_s = self.first_answer_s = 0.0
        self.num_events = self.num_reasoning_events = self.num_tool_events = 0
        self.status = 0
        self.gaps = array("f")

    @property
    def has_begun(self) -> bool:
        """Whether any byte of the answer is here."""
        return self.heard_s > 0

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection may carry another request."""
        return self._response.keeps_alive

    @property
    def deltas(self) -> DeltaReader:
        """What was said, and the usage."""
        return self._deltas

    @property
    def num_comments(self) -> int:
        """Comments in the stream, which servers send to keep a connection open."""
        return self._events.num_comments

    def take(self, piece: bytes, now_s: float) -> bool:
        """Read bytes that came at a time; returns whether the answer is whole.

        Raises TroubleError where they end the request.
        """
        self.heard_s = now_s
        if self._deltas.shape is not None and self._response.is_between_chunks:
            known = self._take_known(piece, now_s)
            if known == len(piece):
                return False
            piece = piece[known:] if known else piece
        body = self._response.feed(piece)
        if self._is_stream is None:
            if not self._response.has_ended_head:
                return False
            self._begin()
        if body:
            if self._is_stream:
                self._count(self._events.feed(body), now_s)
            else:
                self._body += body
                if len(self._body) > _MOST_BODY_BYTES:
                    raise TroubleError(Trouble.OVERSIZED, "an answer of more than 64 MiB")
        return self._response.is_done

    def _take_known(self, piece: bytes, now_s: float) -> int:
        """Count the chunks at the start of a piece that hold one event of the known shape each.

        Returns how many bytes they are. What comes after them is read the long way, and so is all
        where an event is begun but not ended. It counts what ``_count`` would count.
        """
        shape = self._deltas.shape
        assert shape is not None
        if not self._events.is_empty:
            return 0
        head, tail, size = shape.line_head, shape.line_tail, len(piece)
        margin = len(head) + len(tail)
        at = found = 0
        while at < size:
            line = piece.find(b"\r\n", at)
            begin = line + 2
            if line < 0 or not piece.startswith(head, begin):
                break
            try:
                end = begin + int(piece[at:line], 16)
            except ValueError:
                break
            if not (piece.startswith(b"\r\n", end) and piece.endswith(tail, begin, end)):
                break
            if end - begin <= margin or not shape.is_plain(
                piece[begin + len(head) : end - len(tail)]
            ):
                break
            at = end + 2
            found += 1
        if found:
            self._note(shape.part, found, now_s)
            self._check_end()
        return at

    def take_end(self, now_s: float) -> None:
        """Take note that the server closed the connection."""
        try:
            self._response.close()
        except TroubleError:
            if self._is_stream and self._deltas.is_done:  # all was said before the last chunk
                return
            raise
        self.heard_s = now_s

    def settle(self, now_s: float) -> None:
        """Judge a whole answer; raises TroubleError where it does not count."""
        self.ended_s = now_s
        if self.status != _OK:
            self.detail = bytes(self._body[:_MOST_ERROR_BYTES]).decode("utf-8", "replace")
            if (place := self._response.headers.get("location")) is not None:
                self.detail = f"it sends to {place[:_MOST_ERROR_BYTES]}, which is not followed"
            self.error = f"http_{self.status}"
            return
        if self._is_stream:
            self._count(self._events.finish(), now_s)
        else:
            self._count([bytes(self._body)], now_s)
        if not (self._deltas.is_done or self._deltas.finish_reason):
            raise TroubleError(Trouble.CUT, "the stream ended without finish_reason and [DONE]")
        if not self.num_events:
            raise TroubleError(Trouble.NO_TOKENS, "an answer without any token")

    def fail(self, kind: str, detail: str, now_s: float) -> None:
        """End the request as one that does not count."""
        self.error, self.detail, self.ended_s = kind, detail[:_MOST_ERROR_BYTES], now_s

    def _begin(self) -> None:
        self.status = self._response.status
        kind = self._response.headers.get("content-type", "")
        self._is_stream = self.status == _OK and "text/event-stream" in kind.lower()
        retry = self._response.headers.get("retry-after", "")
        if retry.isascii() and retry.isdigit():
            self.retry_after_s = float(retry[:6])

    def _count(self, events: list[bytes], now_s: float) -> None:
        read = self._deltas.read
        for event in events:
            part = read(event)
            if part is not None:
                self._note(part, 1, now_s)
        self._check_end()

    def _note(self, part: Part, count: int, now_s: float) -> None:
        """Count events that came at the same time and carry tokens of one part."""
        gaps = self.gaps
        if self.last_s:
            gaps.append(now_s - self.last_s)
        else:
            self.first_event_s = now_s
        for _ in range(count - 1):
            gaps.append(0.0)
        self.last_s = now_s
        self.num_events += count
        if part is Part.REASONING:
            self.num_reasoning_events += count
            self.first_reasoning_s = self.first_reasoning_s or now_s
        else:
            if part is Part.TOOL_CALL:
                self.num_tool_events += count
            self.first_answer_s = self.first_answer_s or now_s

    def _check_end(self) -> None:
        """Raise TroubleError where a stream goes on far beyond what was asked for."""
        if self.num_events > self._most_events:
            raise TroubleError(
                Trouble.ENDLESS,
                f"{self.num_events} events for {self.order.output_tokens} tokens asked for",
            )
