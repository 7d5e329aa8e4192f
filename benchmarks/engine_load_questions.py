"""Questions whose answers are the same whenever they are asked, and how to compare answers."""

import base64
import io
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

CHAT: Final = "/v1/chat/completions"
COMPLETION: Final = "/v1/completions"
# docs/engine.md holds a batch to 5e-5 of the largest logit, which is 7 to 9 in tiny checkpoints.
LOGPROB_TOLERANCE: Final = 5e-5 * 8
_WORDS: Final = ("the", "sky is blue", "and", "why,", "雨", "in Zürich:", "3 < 4 &", "so\non", "🙂")
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


class Question(NamedTuple):
    """A path and a body, without what says whether it is streamed."""

    path: str
    body: dict[str, Any]


class Answer(NamedTuple):
    """What one answer says, whichever way it came."""

    text: str
    reasoning: str
    calls: tuple[str, ...]
    finish_reason: str | None
    usage: str
    logprobs: tuple[float, ...]


def questions(count: int, *, has_images: bool) -> list[Question]:
    """So many different ones: lengths, tools, images, seeds, log-probabilities."""
    chance = random.Random(6)
    return [_question(number, chance, has_images=has_images) for number in range(count)]


def _question(number: int, chance: random.Random, *, has_images: bool) -> Question:
    text = f"{number}: " + " ".join(chance.choices(_WORDS, k=chance.choice((1, 6, 25))))
    body: dict[str, Any] = {"max_tokens": chance.randrange(3, 17), "temperature": 0}
    if number % 2:
        body |= {
            "temperature": 1.1,
            "seed": number,
            "top_p": chance.choice((0.9, 1)),
            "min_p": 1e-4,
        }
    match number % 8:
        case 0 | 1:
            return Question(COMPLETION, {**body, "prompt": text, "logprobs": 3})
        case 2:
            ids = [chance.randrange(200) for _ in range(chance.choice((5, 90, 600)))]
            return Question(COMPLETION, {**body, "prompt": ids, "ignore_eos": True})
        case 3:
            body |= {"tools": [_TOOL], "reasoning_effort": "low"}
        case 4 | 6 | 7:
            body |= {"logprobs": True, "top_logprobs": number % 5}
            body["chat_template_kwargs"] = {"thinking": False}
    content: Any = text
    if number % 8 in (4, 5) and has_images:
        content = [{"type": "text", "text": text}, _image(28 * chance.randrange(1, 6), number)]
    return Question(CHAT, {**body, "messages": [{"role": "user", "content": content}]})


def _image(width: int, number: int) -> dict[str, Any]:
    from PIL import Image  # noqa: PLC0415  (only where images are served)

    data = io.BytesIO()
    Image.new("RGB", (width, 56), (number * 5 % 256, 90, 200)).save(data, "PNG")
    url = "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def with_stop(question: Question, answer: Answer) -> Question:
    """The same, to be ended by characters of its own answer that most likely lie in two tokens."""
    middle = len(answer.text) // 2
    stop = answer.text[middle : middle + 2]
    return question._replace(body={**question.body, "stop": [stop, "never said"]})


def whole_answer(document: Mapping[str, Any]) -> Answer:
    """An answer that came as one document."""
    return _joined([document], "message")


def streamed_answer(events: Iterable[str]) -> Answer:
    """An answer that came as events; a stream that does not end as it must is no answer."""
    *said, done = events
    if done != "[DONE]":
        raise ValueError(f"the stream ends with {done!r}")
    return _joined([json.loads(event) for event in said], "delta")


def _joined(documents: Sequence[Mapping[str, Any]], part: str) -> Answer:
    text = reasoning = usage = ""
    finish_reason = None
    calls: list[str] = []
    logprobs: list[float] = []
    for document in documents:
        if "error" in document:
            raise ValueError(str(document["error"]))
        usage = json.dumps(document.get("usage") or None) if "usage" in document else usage
        for choice in document["choices"]:
            said = choice.get(part) or {}
            text += choice.get("text") or said.get("content") or ""
            reasoning += said.get("reasoning_content") or ""
            calls += [json.dumps(call) for call in said.get("tool_calls") or ()]
            logprobs += _logprobs(choice.get("logprobs") or {})
            finish_reason = choice["finish_reason"] or finish_reason
    return Answer(text, reasoning, tuple(calls), finish_reason, usage, tuple(logprobs))


def _logprobs(told: Mapping[str, Any]) -> Iterator[float]:
    """Every number of them; the likeliest come in order, so that equals may change their names."""
    for entry in told.get("content") or ():
        yield entry["logprob"]
        yield from (top["logprob"] for top in entry["top_logprobs"])
    yield from told.get("token_logprobs") or ()
    for tops in told.get("top_logprobs") or ():
        yield from tops.values()


def difference(found: Answer, alone: Answer) -> float | None:
    """The largest difference of a log-probability; None where anything else differs."""
    if found[:-1] != alone[:-1] or len(found.logprobs) != len(alone.logprobs):
        return None
    pairs = zip(found.logprobs, alone.logprobs, strict=True)
    return max((abs(one - other) for one, other in pairs), default=0.0)
