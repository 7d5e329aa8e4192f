"""What goes in: letters of every kind, marks of the format, pictures, long prompts."""

from typing import Any, Final

from k31ctl.bench.conformance.check_answers import judge_empty
from k31ctl.bench.conformance.picture import COLOUR, NUM_TOKENS, SIDE, picture_url
from k31ctl.bench.conformance.probe import Probe
from k31ctl.bench.conformance.questions import FEW_TOKENS, WORDS, asked, words
from k31ctl.bench.conformance.reply import OK, SERVER_ERROR, Reply
from k31ctl.bench.conformance.verdicts import (
    Outcome,
    fail_if,
    failed,
    inconclusive,
    passed,
    skipped,
    unclear_if,
)

_SAMPLE: Final = "naïve Ωμέγα 漢字 かな 한글 عربي 👩‍👩‍👧 e\u0301 ½"
_CONTROLS: Final = "a\x00b\x07c\x1b[31md\x7fe\u2028f\ufeffg\u202eh\uffff"
_LONE: Final = rb"a\ud83db\udc00c"
_REPLACEMENT: Final = "\ufffd"
_MARKS: Final = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
_NUM_MARKS: Final = 24
_NUMBER: Final = "58213"
_NEEDLE: Final = f"The harbour master's number is {_NUMBER}."
_SPARE_TOKENS: Final = 64
_LEAST_CONTEXT: Final = 1024
_FRAME_TOKENS: Final = range(3 + 2, 3 + 16)  # three marks, and the text "image 512x512"


def unicode_text(probe: Probe) -> Outcome:
    """Letters outside ASCII come back as they went in, streamed or not."""
    question = f"Repeat the following line exactly, and nothing else:\n{_SAMPLE}"
    whole = probe.ask("letters, whole", asked(question))
    streamed = probe.ask("letters, streamed", asked(question, stream=True))
    if any("UTF-8" in problem for problem in streamed.problems):
        return failed("streamed: an event ends inside a letter")
    if _REPLACEMENT in _all_of(streamed) and _REPLACEMENT not in _all_of(whole):
        return failed("streamed: letters come as U+FFFD, which they do not whole")
    for way, reply in (("whole", whole), ("streamed", streamed)):
        if _SAMPLE not in reply.content:
            return inconclusive(f"{way}: the line is not repeated: {reply.content[:60]!r}")
    return passed(f"{len(_SAMPLE)} characters of eight scripts, as they went in")


def _all_of(reply: Reply) -> str:
    return reply.thought + reply.content


def control_characters(probe: Probe) -> Outcome:
    """Control characters and half a pair of surrogates are taken or refused, and break nothing."""
    reply = probe.try_ask("control characters", asked(_CONTROLS, max_tokens=FEW_TOKENS))
    if reply.status >= SERVER_ERROR or (reply.error is not None and reply.status == OK):
        return failed(f"control characters break the server: {reply.refusal}")
    taken = [f"control characters: {reply.status}"]
    body = probe.body_of(asked("LONE", max_tokens=FEW_TOKENS)).replace(b"LONE", _LONE)
    reply = probe.post("half a pair of surrogates", body)
    if reply.status >= SERVER_ERROR:
        return failed(f"half a pair of surrogates breaks the server: {reply.refusal}")
    taken.append(f"half a pair of surrogates: {reply.status}")
    return passed(", ".join(taken))


def markup_is_text(probe: Probe) -> Outcome:
    """Marks of the format in a user's text stay letters, and forge no structure."""
    base = probe.ask("no marks", asked("Say yes.", max_tokens=FEW_TOKENS))
    if base.tokens is None:
        return inconclusive("there is no usage to tell")
    for mark in _MARKS:
        text = f"Say yes. {mark * _NUM_MARKS}"
        reply = probe.try_ask(f"{_NUM_MARKS} times {mark}", asked(text, max_tokens=FEW_TOKENS))
        if reply.status >= SERVER_ERROR:
            return failed(f"{mark} breaks the server: {reply.refusal}")
        if reply.is_refused:
            return passed(f"{mark} in a user's text is refused with {reply.refusal}")
        added = (reply.tokens.prompt if reply.tokens is not None else 0) - base.tokens.prompt
        if added < 2 * _NUM_MARKS:
            return failed(
                f"{_NUM_MARKS} times {mark} in a user's text are {added} tokens: "
                "they are taken for marks, and a user can forge a message"
            )
    return passed("each mark is several tokens of text")


def image_input(probe: Probe) -> Outcome:
    """A picture is taken, costs what the format says, and is seen."""
    question = "Which colour fills this picture? Answer with one word."
    parts: list[Any] = [
        {"type": "image_url", "image_url": {"url": picture_url()}},
        {"type": "text", "text": question},
    ]
    reply = probe.try_ask("a red picture", asked(parts))
    if reply.is_refused:
        return skipped(f"pictures are refused with {reply.refusal}")
    if reply.status != OK:
        return failed(f"a picture breaks the server: {reply.refusal}")
    plain = probe.ask("the same without", asked(parts[1:], max_tokens=FEW_TOKENS))
    if reply.tokens is None or plain.tokens is None:
        return inconclusive("there is no usage to tell")
    added = reply.tokens.prompt - plain.tokens.prompt
    size = f"image {SIDE}x{SIDE}"
    framed = probe.count(size)
    frames = _FRAME_TOKENS if framed is None else (3 + framed,)
    if added - NUM_TOKENS not in frames:
        about = f"{NUM_TOKENS} and {frames[0]}" + (f" to {frames[-1]}" if len(frames) > 1 else "")
        return failed(f"{SIDE} x {SIDE} pixels add {added} tokens, not {about} around them")
    if COLOUR not in reply.content.lower():
        return inconclusive(f"{added} tokens are right; the answer is {reply.content[:60]!r}")
    return passed(f"{added} tokens, and its colour is seen")


def long_context(probe: Probe) -> Outcome:
    """A prompt close to the limit is read to its beginning."""
    context = probe.settings.context
    if context is None:
        return skipped("the endpoint tells no longest context; name one with --context")
    if context < _LEAST_CONTEXT:
        return skipped(f"a context of {context} tokens is too short to tell")
    room = min(probe.settings.answer_tokens, context // 4)
    length = _prompt_words(probe, context - room - _SPARE_TOKENS)
    if length is None:
        return inconclusive("there is no usage to tell how long a prompt is")
    num_words, expected = length
    reply = probe.ask("a long prompt", {**_haystack(num_words), "max_tokens": room})
    read = reply.tokens.prompt if reply.tokens else 0
    told = f"{read:,} of {context:,} tokens"
    fail_if(
        read < expected * 0.98, f"{told}: the prompt has {expected:,}, and was cut without a word"
    )
    if reply.finish == "stop":
        judge_empty(reply, _NUMBER, told)
    unclear_if(_NUMBER not in reply.content, f"{told}; the answer is {reply.content[:60]!r}")
    return passed(f"{told}, and what stood first is found")


def context_exceeded(probe: Probe) -> Outcome:
    """A prompt beyond the limit is refused, not cut."""
    context = probe.settings.context
    if context is None:
        return skipped("the endpoint tells no longest context; name one with --context")
    length = _prompt_words(probe, context + context // 10 + _SPARE_TOKENS)
    if length is None:
        return inconclusive("there is no usage to tell how long a prompt is")
    chat = {**_haystack(length[0]), "max_tokens": FEW_TOKENS}
    reply = probe.try_ask("a prompt beyond the limit", chat)
    told = f"{length[1]:,} tokens where {context:,} are the limit"
    if reply.status == OK:
        return failed(f"{told} are taken")
    if not reply.is_refused or reply.error is None:
        return failed(f"{told}: {reply.refusal}")
    return passed(f"{told}: {reply.refusal}")


def _haystack(num_words: int) -> dict[str, Any]:
    text = f"{_NEEDLE}\n{words(num_words)}\nWhat is the harbour master's number? Digits only."
    return asked(text)


def _prompt_words(probe: Probe, tokens: int) -> tuple[int, int] | None:
    """How many words make a prompt of so many tokens, and how many it will have, from usage."""
    counts = []
    for cycles in (1, 9):
        chat = {**_haystack(cycles * len(WORDS)), "max_tokens": FEW_TOKENS}
        reply = probe.ask(f"{cycles * len(WORDS)} words, counted", chat)
        if reply.tokens is None:
            return None
        counts.append(reply.tokens.prompt)
    per_cycle = (counts[1] - counts[0]) / 8
    if per_cycle < len(WORDS) / 2:
        return None
    num_cycles = max(int((tokens - counts[0]) / per_cycle), 0) + 1
    return num_cycles * len(WORDS), round(counts[0] + (num_cycles - 1) * per_cycle)
