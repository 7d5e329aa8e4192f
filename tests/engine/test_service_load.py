"""Many clients at a time, some rude, through OpenAI's own client and plain HTTP."""

import asyncio
import random
import re
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, OpenAI

from k31ctl.engine.service.generator import Generation, Generator
from k31ctl.engine.service.tasks import ServedModel
from tests.engine.scripted import (
    Script,
    ScriptedGenerator,
    ScriptedStepper,
    gauge,
    ids_of,
    served,
    small_model,
    stepped,
    wait_until,
)

NUM_REQUESTS = 200
NUM_AT_A_TIME = 64
MALFORMED = (b"", b"{", b"null", b'{"messages": 3}', b'{"messages": [{"role": "user"}], "n": 7}')
TOOLS: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    return small_model(tmp_path_factory.mktemp("checkpoint"))


def expected(number: int) -> tuple[str, str, list[tuple[str, str]]]:
    calls = [("f", f'{{"x": {number}}}')] * (number % 3)
    return f"thinks of {number}é", f"{number}€ " * (number % 17), calls


def answering(model: ServedModel) -> Script:
    """A script whose answer follows from the question alone."""

    def script(work: Generation) -> Sequence[int]:
        tokenizer = model.tokenizer
        prompt = b"".join(tokenizer.bytes_of(token) for token in work.prompt_ids).decode()
        number = int(re.findall(r"question (\d+)\.", prompt)[-1])
        reasoning, content, calls = expected(number)
        made = "".join(
            f'<|open|>call tool="f" index="{index}"<|sep|><|open|>argument key="x" '
            f'type="number"<|sep|>{number}<|close|>argument<|sep|><|close|>call<|sep|>'
            for index, _ in enumerate(calls, start=1)
        )
        spelt = (
            f"{reasoning}<|close|>think<|sep|><|open|>response<|sep|>{content}"
            f"<|close|>response<|sep|><|open|>tools<|sep|>{made}<|close|>tools<|sep|>"
            "<|close|>message<|sep|><|end_of_msg|>"
        )
        return ids_of(tokenizer, spelt)

    return script


def asked(number: int) -> Any:
    return [{"role": "user", "content": f"question {number}."}]


async def streamed(client: AsyncOpenAI, number: int, *, leave_after: int | None) -> object:
    """Join one stream, or leave it after some pieces and return None."""
    reasoning = content = ""
    calls: list[list[str]] = []
    stream: Any = await client.chat.completions.create(
        model="tiny", messages=asked(number), stream=True, tools=TOOLS
    )
    num_pieces = 0
    async for piece in stream:
        num_pieces += 1
        if num_pieces == leave_after:
            await stream.close()
            return None
        delta = piece.choices[0].delta
        reasoning += getattr(delta, "reasoning_content", "") or ""
        content += delta.content or ""
        for call in delta.tool_calls or ():
            if call.function.name:
                calls.append([call.function.name, ""])
            calls[call.index][1] += call.function.arguments or ""
    return reasoning, content, [(name, arguments) for name, arguments in calls]


async def whole(client: AsyncOpenAI, number: int) -> object:
    answer: Any = await client.chat.completions.create(
        model="tiny", messages=asked(number), tools=TOOLS
    )
    message = answer.choices[0].message
    calls = [(c.function.name, c.function.arguments) for c in message.tool_calls or ()]
    return message.reasoning_content, message.content or "", calls


async def everyone(url: str) -> list[str]:
    """Send all requests, and return what went wrong."""
    wrong: list[str] = []
    chance = random.Random(7)
    turns = asyncio.Semaphore(NUM_AT_A_TIME)
    plain = httpx.AsyncClient(base_url=url, timeout=120)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)

    async def one(number: int, manner: str, leave_after: int) -> None:
        found: object
        right: object
        async with turns:
            if manner == "malformed":
                body = MALFORMED[number % len(MALFORMED)]
                headers = {"Content-Type": "application/json"}
                got = await plain.post("/v1/chat/completions", content=body, headers=headers)
                found, right = (got.status_code, "error" in got.json()), (400, True)
            elif manner == "whole":
                found, right = await whole(client, number), expected(number)
            else:
                left = leave_after if manner == "leaving" else None
                found, right = await streamed(client, number, leave_after=left), expected(number)
            if found is not None and found != right:
                wrong.append(f"{manner} {number}: {found!r}")

    manners = chance.choices(("whole", "streamed", "leaving", "malformed"), k=NUM_REQUESTS)
    await asyncio.gather(
        *(one(number, manner, chance.randrange(1, 9)) for number, manner in enumerate(manners))
    )
    await plain.aclose()
    await client.close()
    return wrong


def undisturbed(model: ServedModel, generator: Generator) -> None:
    with served(model, generator) as url:
        assert asyncio.run(everyone(url)) == []
        wait_until(lambda: gauge(url, "num_requests_open") == 0)
        held = ("num_requests_running", "num_requests_waiting", "kv_cached_tokens")
        assert [gauge(url, name) for name in held] == [0, 0, 0]


def test_no_client_disturbs_another(model: ServedModel) -> None:
    undisturbed(model, ScriptedGenerator(answering(model), num_slots=16))


def test_no_client_disturbs_another_where_the_model_has_a_thread(model: ServedModel) -> None:
    with stepped(ScriptedStepper(answering(model), num_slots=16)) as generator:
        undisturbed(model, generator)


def test_openai_s_client_goes_round_with_tools(model: ServedModel) -> None:
    with served(model, ScriptedGenerator(answering(model)), api_key="secret") as url:
        client = OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0)
        assert [entry.id for entry in client.models.list()] == ["tiny"]
        messages = asked(4)
        first: Any = client.chat.completions.create(
            model="tiny", messages=messages, tools=TOOLS, reasoning_effort="low"
        )
        choice = first.choices[0]
        assert choice.finish_reason == "tool_calls"
        messages += [choice.message.model_dump(exclude_none=True)]
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": "ok"}
            for call in choice.message.tool_calls
        ]
        again: Any = client.chat.completions.create(
            model="tiny", messages=[*messages, *asked(5)], tools=TOOLS
        )
        assert (again.choices[0].message.reasoning, again.choices[0].message.content) == (
            expected(5)[:2]
        )
        assert [call.id for call in again.choices[0].message.tool_calls] == ["f:1", "f:2"]
        client.close()
