"""Answers whole and streamed, and where the reasoning is in them."""

from typing import Final

from k31ctl.bench.conformance.probe import Probe
from k31ctl.bench.conformance.questions import (
    FEW_TOKENS,
    FIRST,
    FIRST_STREAMED,
    SUM,
    SUM_ANSWER,
    asked,
)
from k31ctl.bench.conformance.reply import Reply, markup_in
from k31ctl.bench.conformance.verdicts import (
    Outcome,
    fail_if,
    failed,
    inconclusive,
    passed,
    unclear_if,
)

MARKER_LEAK: Final = "https://github.com/vllm-project/vllm/issues/51412"
LOST_CHANNEL: Final = "https://github.com/vllm-project/vllm/issues/53246"
SKIPPED_THINKING: Final = "https://github.com/sgl-project/sglang/pull/37743"
CUT_REASONING: Final = "https://github.com/vllm-project/vllm/issues/50258"


def first(probe: Probe) -> Reply:
    """A short question's answer."""
    return probe.ask_once(FIRST, asked(SUM))


def first_streamed(probe: Probe) -> Reply:
    """A short question's answer in a stream."""
    return probe.ask_once(FIRST_STREAMED, asked(SUM, stream=True))


def answer_shape(probe: Probe) -> Outcome:
    """An answer in one document has the documented form."""
    reply = first(probe)
    problems = list(reply.problems)
    if reply.finish is None:
        problems.append("it says not why it ended")
    if reply.tokens is None:
        problems.append("it has no usage")
    if problems:
        return failed("; ".join(problems))
    return passed(f"ended with {reply.finish}, with usage")


def stream_shape(probe: Probe) -> Outcome:
    """A stream has the documented form."""
    reply = first_streamed(probe)
    if reply.problems:
        return failed("; ".join(reply.problems))
    return passed(f"ended with {reply.finish}, usage, and the mark of the end")


def stream_equal(probe: Probe) -> Outcome:
    """Streaming changes nothing about an answer but the pieces."""
    whole, streamed = first(probe), first_streamed(probe)
    if whole.is_cut or streamed.is_cut:
        return _no_room(probe)
    if _said(whole) == _said(streamed):
        return passed("the same reasoning, answer and finish_reason")
    again = probe.ask(f"{FIRST}, again", asked(SUM))
    again_streamed = probe.ask(f"{FIRST_STREAMED}, again", asked(SUM, stream=True))
    for name, of in (
        ("finish_reason", lambda reply: reply.finish),
        ("whether there is an answer", lambda reply: bool(reply.content)),
        ("whether there is reasoning", lambda reply: bool(reply.thought)),
        ("the answer", lambda reply: reply.content),
        ("the reasoning", lambda reply: reply.thought),
    ):
        differs = of(whole) != of(streamed)
        is_steady = of(whole) == of(again) and of(streamed) == of(again_streamed)
        if differs and is_steady:
            return failed(f"{name} is not the same when streamed, twice alike", MARKER_LEAK)
    if whole.content.strip() == streamed.content.strip():
        return passed("the same answer; the reasoning changes from one time to the next")
    return inconclusive("the answer changes from one time to the next, streamed or not")


def _said(reply: Reply) -> tuple[str, str, str | None]:
    return reply.thought, reply.content, reply.finish


def reasoning_separated(probe: Probe) -> Outcome:
    """Reasoning comes in its own field, the answer in content, marks of the format in neither."""
    ways = (("whole", first(probe)), ("streamed", first_streamed(probe)))
    for way, reply in ways:
        _refuse_mixed(way, reply)
    if any(reply.is_cut and not reply.content for _, reply in ways):
        return _no_room(probe)
    for way, reply in ways:
        judge_empty(reply, SUM_ANSWER, way)
    fields = [[name for name, text in reply.reasoning.items() if text] for _, reply in ways]
    known = " or ".join(ways[0][1].reasoning)
    fail_if(not any(fields), f"no reasoning in {known}", LOST_CHANNEL)
    unclear_if(not all(fields), "reasoning comes one time and not another; see stream-equal")
    fail_if(
        fields[0] != fields[1],
        f"reasoning is in {' and '.join(fields[0])} whole, in {' and '.join(fields[1])} streamed",
    )
    return passed(f"in {' and '.join(fields[0])}")


def judge_empty(reply: Reply, answer: str, told: str) -> None:
    """End the check where there is no answer: the service's fault if it stands in the reasoning."""
    is_lost = not reply.content and answer in reply.thought
    fail_if(is_lost, f"{told}: the answer is empty, all is reasoning", SKIPPED_THINKING)
    unclear_if(not reply.content, f"{told}: the answer is empty, and not in the reasoning either")


def _refuse_mixed(way: str, reply: Reply) -> None:
    for place, text in (("reasoning", reply.thought), ("content", reply.content)):
        mark = markup_in(text)
        fail_if(mark, f"{way}: {mark} stands in the {place}", LOST_CHANNEL)
    texts = {text for text in reply.reasoning.values() if text}
    fail_if(len(texts) > 1, f"{way}: {' and '.join(reply.reasoning)} say different things")


def reasoning_cut(probe: Probe) -> Outcome:
    """Reasoning that meets the limit stays reasoning."""
    for way, is_streamed in (("whole", None), ("streamed", True)):
        chat = asked(SUM, max_tokens=FEW_TOKENS, stream=is_streamed)
        reply = probe.ask(f"{FEW_TOKENS} tokens, {way}", chat)
        made = reply.tokens.completion if reply.tokens is not None else FEW_TOKENS
        unclear_if(made < FEW_TOKENS, f"{way}: all was said within {FEW_TOKENS} tokens")
        fail_if(not reply.is_cut, f"{way}: finish_reason is {reply.finish}, not length")
        fail_if(
            reply.content and not reply.thought,
            f"{way}: reasoning that was cut comes as content",
            CUT_REASONING,
        )
        fail_if(not reply.thought, f"{way}: the limit is met and no reasoning comes")
    return passed(f"after {FEW_TOKENS} tokens finish_reason is length and content is empty")


def _no_room(probe: Probe) -> Outcome:
    return inconclusive(
        f"{probe.settings.answer_tokens} tokens are not enough for an answer; raise --max-tokens"
    )
