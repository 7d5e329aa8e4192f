"""The real model, tiny and random, behind the real endpoint."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import torch

from k31ctl.engine.service.model_stepper import opened
from k31ctl.engine.service.stepped import SteppedGenerator
from k31ctl.engine.tensors import Target
from tests.engine.conftest import Tiny
from tests.engine.scripted import gauge, served, wait_until

BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 24,
    "logprobs": True,
    "ignore_eos": True,
}
TARGET = Target(dtype=torch.float32, device=torch.device("cpu"))


@pytest.fixture(scope="module", params=["kimi-k3.1-pro", "kimi-k3"])
def url(request: pytest.FixtureRequest, tiny: Tiny) -> Iterator[str]:
    model, generator = opened(
        tiny(request.param), TARGET, name="tiny", num_slots=4, num_tokens=8192
    )
    try:
        with served(model, generator) as address:
            yield address
    finally:
        generator.close()


def completion(url: str, **body: Any) -> Any:
    sent = {"prompt": "The sky is", "max_tokens": 16, "logprobs": 1, "ignore_eos": True, **body}
    response = httpx.post(url + "/v1/completions", json=sent, timeout=300)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def test_a_request_says_alone_what_it_says_among_others(url: str) -> None:
    prompts = ["The sky is", "of the", "a", "and then it"]
    alone = [completion(url, prompt=prompt, temperature=0) for prompt in prompts]

    async def together() -> list[Any]:
        async with httpx.AsyncClient(timeout=300) as client:
            sent = {"max_tokens": 16, "logprobs": 1, "ignore_eos": True, "temperature": 0}
            posts = (
                client.post(url + "/v1/completions", json={**sent, "prompt": prompt})
                for prompt in prompts
            )
            return [answer.json()["choices"][0] for answer in await asyncio.gather(*posts)]

    found = asyncio.run(together())
    assert [choice["text"] for choice in found] == [choice["text"] for choice in alone]
    for one, other in zip(found, alone, strict=True):
        assert one["logprobs"]["token_logprobs"] == pytest.approx(
            other["logprobs"]["token_logprobs"], abs=1e-4
        )


def test_a_seed_repeats_an_answer(url: str) -> None:
    assert completion(url, seed=3) == completion(url, seed=3)
    assert completion(url, seed=3)["text"] != completion(url, seed=4)["text"]


@pytest.mark.parametrize("temperature", [1e-309, 1e-310])
@pytest.mark.parametrize("min_p", [0.0, 0.1])
def test_the_smallest_temperatures_are_greedy(url: str, temperature: float, min_p: float) -> None:
    assert completion(url, temperature=temperature, min_p=min_p) == completion(url, temperature=0)


def test_a_chat_is_answered_within_its_limit(url: str) -> None:
    answer = httpx.post(url + "/v1/chat/completions", json=BODY, timeout=300).json()
    assert answer["usage"]["completion_tokens"] == 24
    assert answer["choices"][0]["finish_reason"] == "length"


def test_leaving_gives_back_slot_and_pages(url: str) -> None:
    body = {**BODY, "stream": True, "max_tokens": 4000, "temperature": 0}  # never ends its message
    with httpx.stream("POST", url + "/v1/chat/completions", json=body, timeout=300) as response:
        pieces = response.iter_bytes()
        while gauge(url, "num_requests_running") != 1:
            next(pieces)
        assert gauge(url, "kv_cached_tokens") > 4000
    wait_until(lambda: gauge(url, "num_requests_open") == 0)
    assert gauge(url, "num_requests_running") == gauge(url, "kv_cached_tokens") == 0


def test_the_generator_can_be_closed_while_it_works(tiny: Tiny) -> None:
    _, generator = opened(tiny("kimi-k3"), TARGET, name="t", num_slots=1, num_tokens=64)
    assert isinstance(generator, SteppedGenerator)
    generator.close()
    assert generator.load().num_running == 0
