"""Tokens of prompts as the server counts them, against our own rendering of the chat format."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from k31ctl.bench.conformance.probe import Probe
from k31ctl.bench.conformance.questions import (
    FEW_TOKENS,
    LOOK_UP_OSLO,
    LOOKUP,
    TOWN,
    asked,
    call,
    called,
    result,
    user,
)
from k31ctl.bench.conformance.verdicts import Outcome, failed, inconclusive, passed, skipped
from k31ctl.core.chat_format.prompt import (
    last_opener,
    prompt_segments,
    read_chat_request,
)
from k31ctl.core.chat_format.segments import Segment
from k31ctl.core.chat_format.system_notes import DEFAULT_EFFORT, thinking_effort
from k31ctl.values import frozen

OPENER_COUNTED: Final = "https://github.com/ROCm/ATOM/pull/1727"
_REASONING: Final = "The station list has Oslo, so a lookup by the name of the city will do. " * 4
_CHARACTERS: Final = (2.0, 7.0)  # per token of such text, at the least and at the most


@frozen
class Span:
    """How many tokens something may have; one number where the endpoint's tokenizer told."""

    low: int
    high: int

    @property
    def is_exact(self) -> bool:
        """Whether it is one number."""
        return self.low == self.high

    @property
    def text(self) -> str:
        """As a sentence has it."""
        return f"{self.low}" if self.is_exact else f"{self.low} to {self.high}"


@frozen
class Counted:
    """One prompt: its name, the server's count, ours without the opener, and the opener's."""

    name: str
    found: int
    expected: Span
    opener: int
    missing: str

    @property
    def is_right(self) -> bool:
        """Whether the count is ours, with or without the opener."""
        if self.expected.is_exact:
            return self.found in (self.expected.low, self.expected.low + self.opener)
        return self.expected.low <= self.found <= self.expected.high + self.opener


def _chats(api: str) -> dict[str, dict[str, Any]]:
    calls = [call("lookup_station:0", "Oslo")]
    results = [result("lookup_station:0", "code QX-4471")]
    thought = {"reasoning_content": _REASONING}
    turns = [
        *called(LOOK_UP_OSLO, calls, results, **thought),
        {"role": "assistant", "content": "It is QX-4471.", "reasoning_content": "Done."},
        user("And of Bergen?"),
    ]
    system = [{"role": "system", "content": "You are terse."}, user("Good morning.")]
    chats = {
        "a question": asked("Good morning."),
        "a system message": {"messages": system},
        "tools": asked(LOOK_UP_OSLO, tools=[LOOKUP]),
        "a call that is required": asked(LOOK_UP_OSLO, tools=[LOOKUP], tool_choice="required"),
        "an agent's turns": {"messages": turns, "tools": [LOOKUP]},
    }
    if api == "chat":
        chats["a schema"] = asked("Name a town.", response_format=TOWN)
    return chats


def prompt_tokens(probe: Probe) -> Outcome:
    """Prompts have as many tokens as the chat format gives them."""
    found = _counted(probe)
    if found is None:
        return inconclusive("there is no usage to tell")
    wrong = [each for each in found if not each.is_right]
    if wrong:
        one = wrong[0]
        which = ", ".join(each.name for each in wrong)
        text = f"{one.name} has {one.found} tokens, rendered {one.expected.text}"
        return failed(f"{text}{one.missing}; wrong for {which}")
    by = "by its own tokenizer" if found[0].expected.is_exact else "by length of text, roughly"
    return passed(f"{len(found)} prompts as rendered, {by}")


def prompt_opener(probe: Probe) -> Outcome:
    """The opener of the answer's first channel is not counted, as Moonshot does not count it."""
    found = _counted(probe)
    if found is None:
        return inconclusive("there is no usage to tell")
    if not found[0].expected.is_exact:
        return skipped("the endpoint has no /tokenize to count with")
    if all(each.found == each.expected.low for each in found):
        return passed(f"its {found[0].opener} tokens are left out")
    if all(each.found == each.expected.low + each.opener for each in found):
        return failed(f"its {found[0].opener} tokens are counted in", OPENER_COUNTED)
    return inconclusive("the prompts are not as rendered, see prompt-tokens")


def effort_note(probe: Probe) -> Outcome:
    """Without ``reasoning_effort`` the prompt says max, and other values change one word."""
    counts = {}
    for effort in (None, "max", "low"):
        chat = asked("Good morning.", reasoning_effort=effort, max_tokens=FEW_TOKENS)
        reply = probe.ask(f"effort {effort or 'absent'}", chat)
        if reply.tokens is None:
            return inconclusive("there is no usage to tell")
        counts[effort] = reply.tokens.prompt
    if counts[None] != counts["max"]:
        less = counts["max"] - counts[None]
        return failed(
            f"without reasoning_effort the prompt has {abs(less)} tokens "
            f"{'less' if less > 0 else 'more'} than with max, which is the default"
        )
    if abs(counts["low"] - counts["max"]) > 2:  # noqa: PLR2004 - one word, of a token or two
        return failed(f"low makes {counts['low']} tokens of it, max {counts['max']}")
    return passed(f"{counts['max']} tokens, whether absent or max")


def _counted(probe: Probe) -> list[Counted] | None:
    """The prompts, counted by the server and by us; None where it tells no usage."""
    found = []
    for name, chat in _chats(probe.api.name).items():
        reply = probe.ask_once(f"{name}, counted", {**chat, "max_tokens": FEW_TOKENS})
        if reply.tokens is None:
            return None
        found.append(_rendered(probe, name, chat, reply.tokens.prompt))
    return found


def _rendered(probe: Probe, name: str, chat: Mapping[str, Any], found: int) -> Counted:
    request = read_chat_request({**probe.settings.common, **chat})
    opener = _span(probe, last_opener(request)).low
    whole = _span(probe, prompt_segments(request))
    expected = Span(low=whole.low - opener, high=whole.high - opener)
    note = _span(probe, thinking_effort(request.effort or DEFAULT_EFFORT))
    less = expected.low - found
    missing = ""
    if note.is_exact and less in (note.low, note.low - opener):
        missing = ": the thinking-effort note is missing"
    elif name == "an agent's turns" and less > 0:
        missing = ": reasoning, calls or results of earlier turns are missing"
    return Counted(name=name, found=found, expected=expected, opener=opener, missing=missing)


def _span(probe: Probe, segments: Iterable[Segment]) -> Span:
    """Tokens of a prompt: each mark is one, each text is counted by the endpoint or by length."""
    low = high = 0
    for segment in segments:
        if segment.is_special:
            low, high = low + 1, high + 1
            continue
        count = probe.count(segment.text)
        if count is None:
            fewest, most = _CHARACTERS[1], _CHARACTERS[0]
            low += max(round(len(segment.text) / fewest), 1)
            high += max(round(len(segment.text) / most), 1)
        else:
            low, high = low + count, high + count
    return Span(low=low, high=high)
