"""The service keeps the contract that ``k31ctl bench conformance`` holds endpoints against.

Answers are scripted, as a random model says nothing; all around them is the service's own: the
prompt is read back out of its ids, and what is said goes through markers, parser and stream.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from k31ctl.bench.conformance.verdicts import Verdict
from k31ctl.engine.service.generator import Generation
from k31ctl.engine.service.model_stepper import opened
from k31ctl.engine.service.tasks import ServedModel
from k31ctl.engine.tensors import Target
from k31ctl.engine.tokenizer import Tokenizer
from tests.bench.conformance.pretend_model import Said, say
from tests.bench.conformance.runs import ended
from tests.engine.conftest import Tiny
from tests.engine.scripted import ScriptedGenerator, ids_of, served, small_model

KEY = "a-key-of-this-test"
SLOTS = 8
_MESSAGE = re.compile(
    r'<\|open\|>message role="(\w+)"((?: \w+="[^"]*")*)<\|sep\|>(.*?)<\|close\|>message<\|sep\|>',
    re.DOTALL,
)
_CITY = re.compile(r'argument key="city" type="string"<\|sep\|>(\w+)')
_PICTURE = re.compile(r"<\|media_begin\|>.*<\|media_end\|>", re.DOTALL)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    return small_model(tmp_path_factory.mktemp("checkpoint"))


def chat_of(text: str) -> dict[str, Any]:
    """The conversation that a rendered prompt holds, as far as an answer depends on it."""
    chat: dict[str, Any] = {"messages": []}
    for role, attributes, body in _MESSAGE.findall(text):
        if 'type="tool-declare"' in attributes:
            chat["tools"] = ["as declared"]
        elif 'type="tool-choice"' in attributes:
            chat["tool_choice"] = "none" if "tool_choice=none" in body else "required"
        elif 'type="response-format"' in attributes:
            chat["response_format"] = "as asked for"
        else:
            chat["messages"].append(_message(role, attributes, body))
    return chat


def _message(role: str, attributes: str, body: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role, "content": body}
    if role == "tool":
        found = re.search(r'index="(\d+)"', attributes)
        message["tool_call_id"] = found[1] if found else ""
    if role == "user" and _PICTURE.search(body):
        message["content"] = [{"type": "text", "text": _PICTURE.sub("", body)}]
    if calls := _CITY.findall(body):
        message["tool_calls"] = [
            {"id": str(index), "function": {"arguments": json.dumps({"city": city})}}
            for index, city in enumerate(calls, start=1)
        ]
    return message


def spelt(said: Said) -> str:
    """An answer as the model writes it."""
    tools = "".join(
        f'<|open|>call tool="{name}" index="{index}"<|sep|>'
        + "".join(_argument(key, value) for key, value in given.items())
        + "<|close|>call<|sep|>"
        for index, (name, given) in enumerate(said.calls, start=1)
    )
    return (
        said.reasoning.replace("<|", "<")
        + "<|close|>think<|sep|><|open|>response<|sep|>"
        + said.content
        + "<|close|>response<|sep|>"
        + (f"<|open|>tools<|sep|>{tools}<|close|>tools<|sep|>" if tools else "")
        + "<|close|>message<|sep|><|end_of_msg|>"
    )


def _argument(key: str, value: Any) -> str:
    kind = "string" if isinstance(value, str) else "number"
    return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'


def answers(tokenizer: Tokenizer) -> Any:
    def script(work: Generation) -> Sequence[int]:
        prompt = b"".join(tokenizer.bytes_of(token) for token in work.prompt_ids)
        return ids_of(tokenizer, spelt(say(chat_of(prompt.decode("utf-8", "replace")))))

    return script


@pytest.fixture(scope="module")
def url(model: ServedModel) -> Iterator[str]:
    generator = ScriptedGenerator(answers(model.tokenizer), num_slots=SLOTS, pause_s=0.0005)
    with served(model, generator, api_key=KEY) as address:
        yield address


def test_the_service_keeps_the_contract(url: str) -> None:
    results = ended(url, token=KEY, answer_tokens=3000, check_s=120.0).results
    told = {r.id: f"{r.verdict}: {r.detail}" for r in results if r.verdict is not Verdict.PASSED}
    assert told == {}


def test_what_a_random_model_is_counted_for_is_right(tiny: Tiny) -> None:
    target = Target(dtype=torch.float32, device=torch.device("cpu"))
    model, generator = opened(
        tiny("kimi-k3.1-pro"), target, name="tiny", num_slots=2, num_tokens=2048
    )
    counted = ("max-tokens", "prompt-tokens", "prompt-opener", "effort-note")
    try:
        with served(model, generator) as address:
            results = ended(address, only=counted, answer_tokens=16, check_s=300.0).results
    finally:
        generator.close()
    assert {r.id: r.verdict for r in results} == dict.fromkeys(counted, Verdict.PASSED)
