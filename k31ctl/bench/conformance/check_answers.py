"""Answers whole and streamed, and where the reasoning is in them."""

from typing import Final

from k31ctl.bench.conformance.probe import Probe
from k31ctl.bench.conformance.questions import FEW_TOKENS, FIRST, FIRST_STREAMED, SUM, asked
from k31ctl.bench.conformance.reply import Reply, markup_in
from k31ctl.bench.conformance.verdicts import Outcome, failed, inconclusive, passed

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
    if bool(whole.thought) != bool(streamed.thought):
        return failed(f"reasoning comes only {'whole' if whole.thought else 'streamed'}")
    if bool(whole.content) != bool(streamed.content):
        way = "whole" if whole.content else "streamed"
        return failed(f"an answer comes only {way}", SKIPPED_THINKING)
    if whole.finish != streamed.finish:
        return failed(f"finish_reason is {whole.finish} whole and {streamed.finish} streamed")
    if _said(whole) == _said(streamed):
        return passed("the same reasoning and the same answer")
    return _repeated(probe, whole, streamed)


def _repeated(probe: Probe, whole: Reply, streamed: Reply) -> Outcome:
    """Tell an endpoint that never repeats itself from one that streams something else."""
    again = probe.ask(f"{FIRST}, again", asked(SUM))
    again_streamed = probe.ask(f"{FIRST_STREAMED}, again", asked(SUM, stream=True))
    if _said(again) == _said(whole) and _said(again_streamed) == _said(streamed):
        part = "answer" if whole.content != streamed.content else "reasoning"
        return failed(f"the {part} differs, the same way twice", MARKER_LEAK)
    if whole.content.strip() == streamed.content.strip():
        return passed("the same answer; the reasoning changes from one time to the next")
    return inconclusive("the answer changes from one time to the next, streamed or not")


def _said(reply: Reply) -> tuple[str, str]:
    return reply.thought, reply.content


def reasoning_separated(probe: Probe) -> Outcome:
    """Reasoning comes in its own field, the answer in content, marks of the format in neither."""
    fields = []
    for way, reply in (("whole", first(probe)), ("streamed", first_streamed(probe))):
        bad = _mixed(way, reply)
        if bad is not None:
            return bad
        if reply.is_cut and not reply.content:
            return _no_room(probe)
        if not reply.content:
            return failed(f"{way}: the answer is empty, all is reasoning", SKIPPED_THINKING)
        fields.append([name for name, text in reply.reasoning.items() if text])
    if fields[0] != fields[1]:
        return failed(f"reasoning is in {fields[0]} whole and in {fields[1]} streamed")
    return passed(f"in {' and '.join(fields[0])}")


def _mixed(way: str, reply: Reply) -> Outcome | None:
    texts = {text for text in reply.reasoning.values() if text}
    for place, text in (("reasoning", reply.thought), ("content", reply.content)):
        if mark := markup_in(text):
            return failed(f"{way}: {mark} stands in the {place}", LOST_CHANNEL)
    if len(texts) > 1:
        return failed(f"{way}: {' and '.join(reply.reasoning)} say different things")
    if not texts:
        return failed(f"{way}: no reasoning in {' or '.join(reply.reasoning)}", LOST_CHANNEL)
    return None


def reasoning_cut(probe: Probe) -> Outcome:
    """Reasoning that meets the limit stays reasoning."""
    for way, is_streamed in (("whole", None), ("streamed", True)):
        chat = asked(SUM, max_tokens=FEW_TOKENS, stream=is_streamed)
        reply = probe.ask(f"{FEW_TOKENS} tokens, {way}", chat)
        if not reply.is_cut:
            if reply.thought and reply.content:
                return inconclusive(f"{way}: all was said within {FEW_TOKENS} tokens")
            return failed(f"{way}: finish_reason is {reply.finish}, not length")
        if reply.content and not reply.thought:
            return failed(f"{way}: reasoning that was cut comes as content", CUT_REASONING)
        if not reply.thought:
            return failed(f"{way}: the limit is met and no reasoning comes")
    return passed(f"after {FEW_TOKENS} tokens finish_reason is length and content is empty")


def _no_room(probe: Probe) -> Outcome:
    return inconclusive(
        f"{probe.settings.answer_tokens} tokens are not enough for an answer; raise --max-tokens"
    )
