"""Tools: calls, their streams, the choice, and results on the way back."""

import re
from typing import Any, Final

from k31ctl.bench.conformance.check_answers import LOST_CHANNEL
from k31ctl.bench.conformance.probe import NotAnsweredError, Probe
from k31ctl.bench.conformance.questions import (
    CONVERT,
    FEW_TOKENS,
    LOOK_UP_BOTH,
    LOOK_UP_OSLO,
    LOOKUP,
    TOOL,
    asked,
    call,
    called,
    result,
    words,
)
from k31ctl.bench.conformance.reply import OK, Call, Reply, markup_in
from k31ctl.bench.conformance.verdicts import (
    Outcome,
    Verdict,
    fail_if,
    failed,
    inconclusive,
    passed,
    unclear_if,
)

REQUIRED_EMPTY: Final = "https://github.com/smg-project/smg/pull/1983"
CODE: Final = "QX-4471"
CODES: Final = {"Oslo": "OSL-311", "Bergen": "BGO-722"}
NO_CALL: Final = "the model made no call"
_NAMED: Final = {"type": "function", "function": {"name": "lookup_station"}}
_LONG: Final = 200


def _asked_for_tool(**fields: Any) -> dict[str, Any]:
    return asked(LOOK_UP_OSLO, tools=[LOOKUP], **fields)


def first_call(probe: Probe) -> Reply:
    """The answer to a question that needs a tool."""
    return probe.ask_once(TOOL, _asked_for_tool())


def tool_call(probe: Probe) -> Outcome:
    """A tool call is whole: id, name, arguments as a JSON object, and the reason of the end."""
    return _judged(first_call(probe))


def _judged(reply: Reply) -> Outcome:
    for place, text in (("reasoning", reply.thought), ("content", reply.content)):
        if mark := markup_in(text):
            return failed(f"{mark} stands in the {place}", LOST_CHANNEL)
    if not reply.calls:
        if reply.finish == "tool_calls":
            return failed("finish_reason is tool_calls, and there is no call", LOST_CHANNEL)
        return inconclusive(NO_CALL)
    for made in reply.calls:
        if wrong := _wrong(made):
            return failed(wrong)
    if reply.finish != "tool_calls":
        return failed(f"finish_reason is {reply.finish}, not tool_calls")
    return passed(f"{reply.calls[0].name} with {reply.calls[0].arguments}"[:120])


def _wrong(made: Call) -> str:
    """What is wrong with the form of a call, empty where nothing is."""
    if not made.id:
        return "a call has no id"
    if made.name not in (LOOKUP["function"]["name"], CONVERT["function"]["name"]):
        return f"a call names {made.name[:60]!r}, which is no tool"
    if made.values is None:
        return f"arguments are no JSON object: {made.arguments[:80]}"
    return ""


def tool_stream(probe: Probe) -> Outcome:
    """A streamed call says the same as a whole one."""
    whole = first_call(probe)
    streamed = probe.ask("the same, streamed", _asked_for_tool(stream=True))
    unclear_if(not whole.calls and not streamed.calls, NO_CALL)
    of_calls = [problem for problem in streamed.problems if "tool call" in problem]
    fail_if(of_calls, "; ".join(of_calls))
    if not whole.calls or not streamed.calls:
        again = probe.ask("the same, again", _asked_for_tool(stream=not streamed.calls or None))
        unclear_if(again.calls, "the model calls one time and not another")
        return failed(f"a call comes only {'whole' if whole.calls else 'streamed'}", LOST_CHANNEL)
    judged = _judged(streamed)
    is_same = _names(whole) == _names(streamed)
    unclear_if(
        judged.verdict is Verdict.PASSED and not is_same, "the model calls something else each time"
    )
    return judged


def _names(reply: Reply) -> list[tuple[str, Any]]:
    return [(made.name, sorted(made.values or {})) for made in reply.calls]


def tool_choice(probe: Probe) -> Outcome:
    """``none`` means no call, ``required`` at least one, a name that one."""
    reply = probe.ask("tool_choice none", _asked_for_tool(tool_choice="none"))
    fail_if(reply.calls, "tool_choice none, and a tool is called")
    reply = probe.ask("tool_choice required", _required("required"))
    unclear_if(
        reply.is_cut and not reply.calls, "tool_choice required: the answer was cut before a call"
    )
    if not reply.calls:
        return _none_required(probe)
    named = probe.try_ask("tool_choice by name", _required(_NAMED))
    if named.is_refused:
        return passed(f"none and required; a name is refused with {named.refusal}")
    fail_if(named.status != OK, f"tool_choice by name: {named.refusal}")
    is_called = {made.name for made in named.calls} == {"lookup_station"}
    fail_if(not is_called and not named.is_cut, "tool_choice by name, and that tool is not called")
    return passed("none, required and by name")


def _none_required(probe: Probe) -> Outcome:
    """What it means that no tool was called although one was required."""
    told = "tool_choice required, and no tool is called"
    if first_call(probe).calls:
        return failed(told, REQUIRED_EMPTY)
    return failed(f"{told}: not enforced, and left to a model that calls none when asked either")


def _required(choice: Any) -> dict[str, Any]:
    return asked("Good morning.", tools=[CONVERT, LOOKUP], tool_choice=choice)


def tool_round_trip(probe: Probe) -> Outcome:
    """A tool's result reaches the model, with the reasoning of before."""
    reply = first_call(probe)
    chat = _with_result(probe, reply, f"The code is {CODE}.")
    answer = probe.ask("the result goes back", chat)
    if CODE in answer.content:
        return passed("the answer uses the result")
    short = probe.ask("the result, counted", {**chat, "max_tokens": FEW_TOKENS})
    longer = _with_result(probe, reply, f"The code is {CODE}. {words(_LONG)}")
    long = probe.ask("a longer result, counted", {**longer, "max_tokens": FEW_TOKENS})
    if short.tokens is None or long.tokens is None:
        return inconclusive("the answer does not use the result, and there is no usage to tell why")
    if long.tokens.prompt - short.tokens.prompt < _LONG // 2:
        return failed("the result does not reach the prompt: a longer one adds no tokens")
    return inconclusive("the result reaches the prompt, and the answer does not use it")


def _with_result(probe: Probe, reply: Reply, text: str) -> dict[str, Any]:
    calls = [call("lookup_station:0", "Oslo")]
    if reply.calls and not any(_wrong(made) for made in reply.calls):
        calls = [
            {
                "id": made.id,
                "type": "function",
                "function": {"name": made.name, "arguments": made.arguments},
            }
            for made in reply.calls
        ]
    results = [result(str(made["id"]), text) for made in calls]
    thought = {reasoning_field(reply): reply.thought} if reply.thought else {}
    messages = called(LOOK_UP_OSLO, calls, results, **thought)
    return {"messages": messages, "tools": [LOOKUP]}


def reasoning_field(reply: Reply) -> str:
    """The field that reasoning goes back in: the one that it came in."""
    found = next((name for name, text in reply.reasoning.items() if text), "reasoning_content")
    return "reasoning_content" if found == "thinking" else found


def parallel_calls(probe: Probe) -> Outcome:
    """Calls made at once have ids of their own, and results find them in whatever order."""
    reply = probe.ask("two cities", asked(LOOK_UP_BOTH, tools=[LOOKUP]))
    streamed = probe.ask("the same, streamed", asked(LOOK_UP_BOTH, tools=[LOOKUP], stream=True))
    for way, each in (("whole", reply), ("streamed", streamed)):
        ids = [made.id for made in each.calls if made.id]
        is_apart = len(set(ids)) == len(ids)
        fail_if(not is_apart, f"{way}: calls made at once have the ids {', '.join(ids)}")
        mixed = next((c.arguments for c in each.calls if c.values is None), None)
        fail_if(mixed is not None, f"{way}: arguments are no JSON object: {str(mixed)[:80]}")
    kept = {str((made.values or {}).get("city")): made.id for made in reply.calls}
    is_made = set(kept) == set(CODES)
    if not is_made:
        kept = {"Oslo": "lookup_station:0", "Bergen": "lookup_station:1"}
    answer = _told_backwards(probe, kept)
    found = {city: _code_after(city, answer.content) for city in CODES}
    if found == CODES:
        made_text = "two calls with ids of their own" if is_made else "two calls of ours"
        return passed(f"{made_text}, results in the other order")
    if found == dict(zip(CODES, reversed(CODES.values()), strict=True)):
        return failed("results in another order than the calls are taken for each other's")
    return inconclusive("the answer does not name both codes")


def _told_backwards(probe: Probe, ids: dict[str, str]) -> Reply:
    calls = [call(ids[city], city) for city in CODES]
    results = [result(ids[city], f"code {code}") for city, code in reversed(CODES.items())]
    question = f"{LOOK_UP_BOTH} Then answer in the form Oslo=CODE, Bergen=CODE."
    messages = called(question, calls, results, reasoning_content="Both at once.")
    return probe.ask("results in the other order", {"messages": messages, "tools": [LOOKUP]})


def _code_after(city: str, text: str) -> str:
    found = re.search(rf"{city}\W{{1,12}}([A-Z]{{3}}-\d{{3}})", text)
    return found[1] if found else ""


def reasoning_kept(probe: Probe) -> Outcome:
    """Reasoning that is sent back stays in the prompt, also before the last question."""
    from_field = reasoning_field(probe.ask_once(TOOL, _asked_for_tool()))
    without = _counted(probe, "with little reasoning", {"reasoning_content": "Yes."})
    if without is None:
        return inconclusive("there is no usage to tell")
    fields = ("reasoning_content", "reasoning") if probe.api.name == "chat" else ("thinking",)
    added = {}
    for field in fields:
        key = "reasoning_content" if field == "thinking" else field
        try:
            count = _counted(probe, f"with {field}", {key: words(_LONG)})
        except NotAnsweredError:
            count = None
        added[field] = (count or without) - without
    own = from_field if probe.api.name == "chat" else "thinking"
    if added[own] < _LONG // 2:
        return failed(f"{_LONG} words of {own} add {added[own]} tokens to the prompt")
    lost = [name for name, count in added.items() if count < _LONG // 2]
    return passed(
        f"{_LONG} words of {own} add {added[own]} tokens"
        + (f"; sent as {lost[0]} they are lost" if lost else "")
    )


def _history(reasoning: dict[str, str]) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": "Remember the word pebble."},
        {"role": "assistant", "content": "I do.", **reasoning},
        {"role": "user", "content": "Which word was it?"},
    ]
    return {"messages": messages, "max_tokens": FEW_TOKENS}


def _counted(probe: Probe, purpose: str, reasoning: dict[str, str]) -> int | None:
    reply = probe.ask(purpose, _history(reasoning))
    return reply.tokens.prompt if reply.tokens is not None else None


def reasoning_dropped(probe: Probe) -> Outcome:
    """What happens to a client that does not send reasoning back."""
    reply = probe.try_ask("an earlier answer without its reasoning", _history({}))
    if reply.status != OK and not reply.is_refused:
        return failed(f"it breaks the server: {reply.refusal}")
    if reply.is_refused:
        return passed(f"it is refused with {reply.refusal}")
    warning = next((text for name, text in reply.headers.items() if "warning" in name), "")
    if warning:
        return passed(f"it is taken, with a warning: {warning}"[:200])
    return passed("it is taken without a word, and the model goes on without what it thought")
