"""What a request asks of an answer: effort, form, stops, probabilities, length."""

import json
from collections.abc import Mapping
from typing import Any, Final

from k31ctl.bench.conformance.check_answers import first, first_streamed
from k31ctl.bench.conformance.probe import Probe
from k31ctl.bench.conformance.questions import FEW_TOKENS, SUM, TOWN, asked
from k31ctl.bench.conformance.reply import OK, Reply, Tokens
from k31ctl.bench.conformance.verdicts import (
    Outcome,
    fail_if,
    failed,
    inconclusive,
    passed,
    skipped,
    unclear_if,
)

EFFORTS: Final = ("low", "high", "max")
_FURTHER: Final = ("medium", "xhigh", "none")
_NO_EFFORT: Final = "sideways"
FORMAT_IGNORED: Final = "https://github.com/vllm-project/vllm/issues/57714"
_STOP: Final = "charlie"
_TOP: Final = 2


def effort_values(probe: Probe) -> Outcome:
    """The documented values of ``reasoning_effort`` are taken, and there is reasoning."""
    for effort in EFFORTS:
        reply = probe.try_ask(f"effort {effort}", _with_effort(effort))
        if reply.status != OK:
            return failed(f"{effort} is refused with {reply.refusal}")
        if not reply.thought:
            return failed(f"no reasoning comes with {effort}")
    return passed(f"{', '.join(EFFORTS)}, each with reasoning")


def effort_rejected(probe: Probe) -> Outcome:
    """A value of ``reasoning_effort`` that does not exist is refused, not passed over."""
    told = []
    for effort in _FURTHER:
        reply = probe.try_ask(f"effort {effort}", _with_effort(effort))
        told.append(f"{effort} {'is taken' if reply.status == OK else reply.status}")
    reply = probe.try_ask("an effort that does not exist", _with_effort(_NO_EFFORT))
    rest = ", ".join(told)
    if reply.status == OK:
        return failed(f"the effort {_NO_EFFORT!r} is taken; {rest}")
    if not reply.is_refused:
        return failed(f"the effort {_NO_EFFORT!r} breaks the server: {reply.refusal}")
    return passed(f"refused with {reply.status}; {rest}")


def _with_effort(effort: str) -> dict[str, Any]:
    return asked(SUM, reasoning_effort=effort, max_tokens=FEW_TOKENS)


def json_schema(probe: Probe) -> Outcome:
    """An answer asked for by a JSON schema is JSON that meets it."""
    reply = _in_form(probe, TOWN)
    found = _json(reply.content)
    if not reply.content:
        return _empty(reply)
    if not isinstance(found, dict):
        return failed(f"not a JSON object: {reply.content[:80]!r}", FORMAT_IGNORED)
    is_right = (
        set(found) == {"city", "population"}
        and isinstance(found["city"], str)
        and isinstance(found["population"], int)
    )
    if not is_right:
        return failed(f"not of the schema: {reply.content[:80]!r}", FORMAT_IGNORED)
    return passed(reply.content[:80])


def json_object(probe: Probe) -> Outcome:
    """An answer asked for as a JSON object is one."""
    reply = _in_form(probe, {"type": "json_object"})
    if not reply.content:
        return _empty(reply)
    if not isinstance(_json(reply.content), dict):
        return failed(f"not a JSON object: {reply.content[:80]!r}", FORMAT_IGNORED)
    return passed(reply.content[:80])


def _in_form(probe: Probe, response_format: Mapping[str, Any]) -> Reply:
    question = "Name one town in Norway and roughly how many people live there, as JSON."
    kind = str(response_format["type"])
    return probe.ask(kind, asked(question, response_format=response_format))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _empty(reply: Reply) -> Outcome:
    if reply.is_cut:
        return inconclusive("the answer was cut before it began; raise --max-tokens")
    return failed("the answer is empty", FORMAT_IGNORED)


def stop_strings(probe: Probe) -> Outcome:
    """A stop string ends the answer, and leaves the reasoning alone."""
    question = f"Write exactly this line: alpha bravo {_STOP} delta"
    for way, is_streamed in (("whole", None), ("streamed", True)):
        reply = probe.ask(f"stop, {way}", asked(question, stop=[_STOP], stream=is_streamed))
        fail_if(_STOP in reply.content, f"{way}: the answer goes on past the stop string")
        if not reply.content and reply.finish == "stop":
            free = probe.ask(f"no stop, {way}", asked(question, stream=is_streamed))
            fail_if(free.content, f"{way}: the stop string ends the reasoning, no answer comes")
        unclear_if("bravo" not in reply.content, f"{way}: the answer is not what was asked for")
        fail_if(reply.finish != "stop", f"{way}: finish_reason is {reply.finish}, not stop")
    return passed("the answer ends before it, the reasoning does not")


def logprobs(probe: Probe) -> Outcome:
    """Probabilities that were asked for come, and are some."""
    chat = asked(SUM, logprobs=True, top_logprobs=_TOP)
    reply = probe.try_ask("logprobs", chat)
    if reply.is_refused:
        return skipped(f"they are not offered: {reply.refusal}")
    if reply.status != OK:
        return failed(f"they break the server: {reply.refusal}")
    if not reply.content and reply.is_cut:
        return inconclusive("the answer was cut before it began; raise --max-tokens")
    unclear_if(not reply.content, "the answer is empty, and has no tokens to tell of")
    entries = _entries(reply.document)
    if not entries:
        return failed("logprobs are asked for and do not come")
    for entry in entries:
        value, top = entry.get("logprob"), entry.get("top_logprobs")
        num_top = len(top) if isinstance(top, list) else _TOP + 1
        if not (isinstance(value, int | float) and value <= 0 and num_top <= _TOP):
            return failed(f"not a token with its logprob: {json.dumps(entry)[:100]}")
    return passed(f"{len(entries)} tokens with their logprob")


def _entries(document: Any) -> list[dict[str, Any]]:
    try:
        found = document["choices"][0]["logprobs"]["content"]
    except (KeyError, IndexError, TypeError):
        return []
    if not isinstance(found, list):
        return []
    return [entry if isinstance(entry, dict) else {} for entry in found]


def usage(probe: Probe) -> Outcome:
    """Usage adds up, and is the same whole and streamed."""
    whole, streamed = first(probe).tokens, first_streamed(probe).tokens
    if whole is None or streamed is None:
        return failed(f"there is none {'whole' if whole is None else 'streamed'}")
    for way, tokens in (("whole", whole), ("streamed", streamed)):
        _add_up(way, tokens, needs_total=probe.api.name == "chat")
    fail_if(
        whole.prompt != streamed.prompt,
        f"one prompt has {whole.prompt} tokens whole and {streamed.prompt} streamed",
    )
    told = "" if whole.reasoning is None else f", {whole.reasoning} of them reasoning"
    return passed(f"{whole.prompt} prompt and {whole.completion} completion tokens{told}")


def _add_up(way: str, tokens: Tokens, *, needs_total: bool) -> None:
    prompt, completion, reasoning = tokens.prompt, tokens.completion, tokens.reasoning or 0
    fail_if(tokens.total is None and needs_total, f"{way}: there is no total_tokens")
    fail_if(
        tokens.total is not None and tokens.total != prompt + completion,
        f"{way}: {prompt} + {completion} are not {tokens.total}",
    )
    fail_if(not prompt or not completion, f"{way}: {prompt} prompt, {completion} completion tokens")
    fail_if(reasoning > completion, f"{way}: {reasoning} of {completion} tokens are reasoning")


def max_tokens(probe: Probe) -> Outcome:
    """The limit on tokens counts reasoning as well, and is kept."""
    reply = probe.ask(f"{FEW_TOKENS} tokens", asked(SUM, max_tokens=FEW_TOKENS))
    if reply.tokens is None:
        return inconclusive("there is no usage to tell")
    made = reply.tokens.completion
    if made > FEW_TOKENS:
        return failed(f"{made} tokens where {FEW_TOKENS} were the limit")
    if made == FEW_TOKENS and not reply.is_cut:
        return failed(f"the limit is met and finish_reason is {reply.finish}")
    return passed(f"{made} tokens, finish_reason {reply.finish}")
