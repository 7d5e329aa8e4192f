"""The service around the model: errors, keys, capacity, and keeping conversations apart."""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from k31ctl.bench.conformance.probe import BUSY, Probe
from k31ctl.bench.conformance.questions import FEW_TOKENS, SUM, asked
from k31ctl.bench.conformance.reply import OK, Reply
from k31ctl.bench.conformance.verdicts import Outcome, failed, inconclusive, passed, skipped
from k31ctl.bench.server_metrics import parse_metrics
from k31ctl.bench.trouble import TroubleError

_NO_KEY: Final = (401, 403)
_RUNNING: Final = ("num_requests_running", "num_running_reqs")
_NUM_LEFT: Final = 6
_FREED_WITHIN_S: Final = 20.0
_LOOK_EVERY_S: Final = 0.1
_WORDS: Final = ("heron-5120", "otter-8847")


def error_shapes(probe: Probe) -> Outcome:
    """A bad request is refused as the client's mistake, with a message in JSON."""
    good = json.loads(probe.body_of(asked(SUM, max_tokens=FEW_TOKENS)))
    flat = []
    for name, body in _mistakes(good).items():
        reply = probe.post(name, body)
        if wrong := _not_an_error(reply):
            return failed(f"{name}: {wrong}")
        if not isinstance(reply.document.get("error"), dict):
            flat.append(name)
    told = [f"{len(_mistakes(good))} mistakes are refused"]
    if flat:
        told.append("as a flat body without the object error")
    told.append(_unknown_model(probe, good))
    return passed("; ".join(told))


def _mistakes(good: Mapping[str, Any]) -> dict[str, bytes]:
    without = {name: value for name, value in good.items() if name != "messages"}
    bodies = {
        "a body without messages": without,
        "messages that are text": {**good, "messages": "hello"},
        "a message that is a number": {**good, "messages": [7]},
        "max_tokens below nothing": {**good, "max_tokens": -1},
        "a temperature that is a word": {**good, "temperature": "hot"},
    }
    encoded = {name: json.dumps(body).encode() for name, body in bodies.items()}
    return {"a body that is no JSON": b'{"model": ', **encoded}


def _not_an_error(reply: Reply) -> str:
    if reply.status == OK:
        return "it is taken"
    if not reply.is_refused:
        return f"it breaks the server: {reply.refusal}"
    if reply.error is None:
        return f"status {reply.status} comes without an error message in JSON"
    return ""


def _unknown_model(probe: Probe, good: Mapping[str, Any]) -> str:
    body = json.dumps({**good, "model": "k31ctl-no-such-model"}).encode()
    reply = probe.post("a model that is not served", body)
    if reply.status == OK:
        return "a model that is not served is answered all the same"
    return f"a model that is not served is {reply.status}"


def wrong_key(probe: Probe) -> Outcome:
    """Where a key is used, another one is refused."""
    if not probe.has_key:
        return skipped("no key is used; the variable of --api-key-env holds none")
    body = probe.body_of(asked(SUM, max_tokens=FEW_TOKENS))
    reply = probe.post("another key", body, token="k31ctl-wrong-key")
    if reply.status == OK:
        return failed("a wrong key is answered: the endpoint is open to everybody")
    if reply.status not in _NO_KEY:
        return failed(f"a wrong key is {reply.refusal}")
    return passed(f"refused with {reply.status}")


def cancellation(probe: Probe) -> Outcome:
    """A client that hangs up frees what its answer held."""
    before = _running(probe)
    chat = asked("Count from 1 to 5000, one number a line, and leave none out.")
    begun = probe.leave("hung up", chat, num=_NUM_LEFT, after_events=3)
    if not begun:
        return inconclusive("no stream began to hang up on")
    since_s = time.monotonic()
    left = _lowest_running(probe, before)
    took = f"{time.monotonic() - since_s:.1f} s"
    if before is not None and left is not None and left > before + begun / 2:
        return failed(
            f"{left - before:.0f} of {begun} answers still run {took} after their clients left"
        )
    try:
        body = probe.body_of(asked(SUM, max_tokens=FEW_TOKENS))
        reply = probe.post("a question after that", body)
    except TroubleError as trouble:
        return failed(f"after {begun} clients hung up, nothing is answered: {trouble.detail}")
    if reply.status in BUSY:
        return failed(f"after {begun} clients hung up, a question is refused: {reply.refusal}")
    if before is None or left is None:
        return inconclusive(
            f"a question after {begun} hang-ups is answered; no /metrics tell what still runs"
        )
    return passed(f"{begun} clients hung up, {left:.0f} answers run {took} later")


def _lowest_running(probe: Probe, before: float | None) -> float | None:
    """The fewest requests that run in the time there is; stops at what ran before."""
    lowest: float | None = None
    ends_s = time.monotonic() + min(_FREED_WITHIN_S, probe.left_s / 2)
    while before is not None and time.monotonic() < ends_s:
        running = _running(probe)
        if running is None:
            return lowest
        lowest = running if lowest is None else min(lowest, running)
        if lowest <= before:
            break
        time.sleep(_LOOK_EVERY_S)
    return lowest


def _running(probe: Probe) -> float | None:
    """Requests under way by the server's own metrics, None where they do not tell."""
    text = probe.get_text("/metrics")
    samples = parse_metrics(text) if text is not None else {}
    found = [value for name, value in samples.items() if name.endswith(_RUNNING)]
    return found[0] if found else None


def isolation(probe: Probe) -> Outcome:
    """Conversations at the same time know nothing of each other."""
    chats = [
        asked(f"My code word is {word}. Repeat my code word, and nothing else.", stream=streamed)
        for streamed in (None, True)
        for word in _WORDS
    ]
    replies = probe.together("conversation", chats)
    seen = [reply.thought + reply.content for reply in replies]
    for place, text in enumerate(seen):
        other = _WORDS[1 - place % 2]
        if other in text:
            return failed(f"conversation {place + 1} has the word of another")
    if not all(_WORDS[place % 2] in reply.content for place, reply in enumerate(replies)):
        return inconclusive("no word is in another's answer, and not every one in its own")
    return passed(f"{len(replies)} at once, each with its own word")
