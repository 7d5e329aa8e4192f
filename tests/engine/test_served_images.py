"""Images through the real endpoint, to the real model, tiny and random."""

import asyncio
import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from PIL import Image

from k31ctl.engine.service.model_stepper import opened
from k31ctl.engine.tensors import Target
from k31ctl.errors import InputError
from tests.engine.conftest import Tiny
from tests.engine.pictures import asked, data_url, picture
from tests.engine.scripted import gauge, served, wait_until

TARGET = Target(dtype=torch.float32, device=torch.device("cpu"))
ROOM = 12_000
ANSWER: dict[str, Any] = {
    "max_tokens": 8, "temperature": 0, "ignore_eos": True, "logprobs": True,
    "reasoning_effort": "low", "chat_template_kwargs": {"thinking": False},
}  # fmt: skip
SMALL, OTHER = picture(112, 84, seed=1), picture(112, 84, seed=2)


@pytest.fixture(scope="module", params=["kimi-k3.1-pro", "kimi-k3"])
def url(request: pytest.FixtureRequest, tiny: Tiny) -> Iterator[str]:
    model, generator = opened(
        tiny(request.param), TARGET, name="tiny", num_slots=4, num_tokens=ROOM
    )
    try:
        with served(model, generator) as address:
            yield address
    finally:
        generator.close()


def answer(url: str, *content: Any) -> Any:
    body = asked(*content, **ANSWER)
    response = httpx.post(url + "/v1/chat/completions", json=body, timeout=300)
    assert response.status_code == 200, response.text
    return response.json()


def likelihoods(document: Any) -> list[float]:
    found = [each["logprob"] for each in document["choices"][0]["logprobs"]["content"]]
    assert found
    return found


def test_an_image_is_answered_and_counted(url: str) -> None:
    without = answer(url, "What is this?")["usage"]["prompt_tokens"]
    found = answer(url, picture(512, 512), "What is this?")["usage"]
    # 361 tokens, media_begin, media_content and media_end, and the pieces of "image 512x512".
    framing = found["prompt_tokens"] - without - 361
    assert 5 <= framing <= 3 + len("image 512x512")
    assert found["completion_tokens"] == 8


@pytest.mark.parametrize(
    ("size", "num_tokens"), [((512, 512), 361), ((1920, 1080), 2691), ((3840, 2160), 10_764)]
)
def test_tokens_are_counted_as_documented(url: str, size: tuple[int, int], num_tokens: int) -> None:
    sent = asked(Image.new("RGB", size), "What is this?")
    found = httpx.post(url + "/tokenize", json=sent, timeout=300).json()["tokens"]
    assert max(found.count(token) for token in set(found)) == num_tokens


def test_what_an_image_shows_and_where_it_stands_matter(url: str) -> None:
    said = [
        likelihoods(answer(url, *content))
        for content in ([SMALL, "And?"], [OTHER, "And?"], [SMALL, OTHER], [OTHER, SMALL])
    ]
    assert said[0] == pytest.approx(likelihoods(answer(url, SMALL, "And?")), abs=1e-5)
    assert said[0] != pytest.approx(said[1], abs=1e-3)
    assert said[2] != pytest.approx(said[3], abs=1e-3)


def test_a_request_with_images_says_alone_what_it_says_among_others(url: str) -> None:
    contents: list[list[Any]] = [
        [SMALL, "And?"],
        ["And?"],
        [OTHER, "then", SMALL],
        [picture(700, 500), "And?"],
    ]
    alone = [answer(url, *content) for content in contents]

    async def together() -> list[Any]:
        async with httpx.AsyncClient(timeout=300) as client:
            address = url + "/v1/chat/completions"
            posts = (client.post(address, json=asked(*each, **ANSWER)) for each in contents)
            return [each.json() for each in await asyncio.gather(*posts)]

    for one, other in zip(asyncio.run(together()), alone, strict=True):
        assert one["usage"] == other["usage"]
        assert likelihoods(one) == pytest.approx(likelihoods(other), abs=1e-4)


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1/cat.png",
        "file:///etc/hostname",
        "data:image/png;base64,no",
        "data:image/png;base64," + base64.b64encode(b"no picture").decode(),
        data_url(SMALL)[:200],
        "data:image/png,plain",
        "",
    ],
)
def test_what_is_no_image_is_refused(url: str, address: str) -> None:
    body = asked("And?")
    part = {"type": "image_url", "image_url": {"url": address}}
    body["messages"][0]["content"].append(part)
    response = httpx.post(url + "/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_an_image_that_the_context_does_not_hold_is_refused(url: str) -> None:
    body = asked(picture(40, 40), Image.new("L", (1861, 7041)), "And?")  # 16,817 tokens
    response = httpx.post(url + "/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_the_place_of_an_image_cannot_be_sent_as_an_id(url: str) -> None:
    sent = asked(SMALL, "And?")
    found = httpx.post(url + "/tokenize", json=sent, timeout=60).json()["tokens"]
    response = httpx.post(url + "/v1/completions", json={"prompt": found}, timeout=60)
    assert response.status_code == 400
    assert "image" in response.json()["error"]["message"]


def test_a_tokenizer_of_another_release_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    shutil.copytree(tiny("kimi-k3"), folder)
    config = json.loads((folder / "config.json").read_text())
    config["media_placeholder_token_id"] += 1
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="media_placeholder_token_id"):
        opened(folder, TARGET, name="tiny", num_slots=1, num_tokens=64)


def test_hanging_up_while_an_image_is_read_gives_everything_back(url: str) -> None:
    body = asked(picture(700, 700), "And?", **ANSWER | {"max_tokens": 4000})

    async def hang_up() -> None:
        async with httpx.AsyncClient(timeout=300) as client:
            post = asyncio.create_task(client.post(url + "/v1/chat/completions", json=body))
            await asyncio.to_thread(wait_until, lambda: gauge(url, "num_requests_running") == 1)
            assert gauge(url, "kv_cached_tokens") > 4625
            post.cancel()
            await asyncio.wait([post])

    asyncio.run(hang_up())
    wait_until(lambda: gauge(url, "num_requests_open") == 0)
    assert gauge(url, "num_requests_running") == gauge(url, "kv_cached_tokens") == 0
    assert answer(url, SMALL, "And?")["usage"]["completion_tokens"] == 8
