"""A request and its answer as evidence, and what an answer's body holds."""

import json
from typing import Any

from k31ctl.bench.ask import Answer
from k31ctl.bench.conformance.redaction import Redaction
from k31ctl.bench.conformance.reply import OK, Reply
from k31ctl.bench.conformance.verdicts import Evidence
from k31ctl.bench.sse import EventSplitter
from k31ctl.bench.trouble import TroubleError


def evidence_of(
    redaction: Redaction,
    *,
    purpose: str,
    path: str,
    body: bytes,
    answer: Answer | None,
    reply: Reply | None,
    trouble: str,
    seconds: float,
) -> Evidence:
    """Return what is kept of one question; ``trouble`` stands for an answer that did not come."""
    response: Any = redaction.short(trouble)
    if answer is not None:
        is_stream = "event-stream" in answer.headers.get("content-type", "").lower()
        whole = redaction.events(events_in(answer.body)) if is_stream else None
        response = redaction.body(answer.body) if whole is None else whole
    is_read = reply is not None and reply.status == OK and reply.error is None
    return Evidence(
        purpose=purpose,
        path=path,
        request=redaction.body(body),
        status=answer.status if answer is not None else None,
        headers=redaction.headers(answer.headers if answer is not None else {}),
        response=response,
        read=redaction.document(_read(reply)) if reply is not None and is_read else None,
        seconds=seconds,
    )


def _read(reply: Reply) -> dict[str, Any]:
    """What an answer says, channel by channel; what is empty is left out."""
    tokens = reply.tokens
    found = {
        **reply.reasoning,
        "content": reply.content,
        "calls": [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in reply.calls],
        "finish": reply.finish,
        "prompt_tokens": tokens.prompt if tokens is not None else None,
        "completion_tokens": tokens.completion if tokens is not None else None,
        "problems": list(reply.problems),
    }
    return {name: value for name, value in found.items() if value}


def events_in(body: bytes) -> list[bytes]:
    """The data of a stream's events; what is too large for one is the last, as it stands."""
    splitter = EventSplitter()
    try:
        return [*splitter.feed(body), *splitter.finish()]
    except TroubleError:
        return [body]


def document_in(body: bytes) -> Any:
    """A body's JSON, None where it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
