"""A service whose experts come from the files says what one says that holds them all."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from k31ctl.core.expert_budget import Budget
from k31ctl.engine.service.model_stepper import opened
from tests.engine.conftest import Tiny
from tests.engine.runs import F32, load
from tests.engine.scripted import gauge, served

# An eighth of the experts of one layer as stored, and ready: nearly each is read again.
TIGHT = Budget(host_bytes=20_000, device_bytes=100_000)
SHARD = "model-00002-of-000002.safetensors"
PROMPTS = ("The sky is", "of the", "a and then it was, as it is")


@contextmanager
def service(folder: Path, streamed: Budget | None) -> Iterator[str]:
    model = load(folder, streamed=streamed)
    found, generator = opened(folder, F32, name="tiny", num_slots=4, num_tokens=2048, model=model)
    with closing(generator), served(found, generator) as url:
        yield url


def asked(url: str, prompt: str) -> httpx.Response:
    body = {"prompt": prompt, "max_tokens": 8, "logprobs": 3, "ignore_eos": True, "seed": 5}
    return httpx.post(url + "/v1/completions", json=body, timeout=300)


def test_it_says_the_same_to_the_last_digit(tiny: Tiny) -> None:
    answers: list[Any] = []
    for streamed in (None, TIGHT):
        with service(tiny("kimi-k3.1-pro"), streamed) as url:
            answers.append([asked(url, prompt).json()["choices"] for prompt in PROMPTS])
            has_counter = "k31ctl:experts_total" in httpx.get(url + "/metrics").text
            assert has_counter == (streamed is not None)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_file_that_is_lost_ends_requests_with_its_name_and_frees_them(
    tiny: Tiny, tmp_path: Path, damage: str
) -> None:
    folder = shutil.copytree(tiny("kimi-k3"), tmp_path / "copy")
    shard, away = folder / SHARD, folder / "away"
    with service(folder, TIGHT) as url:
        before = asked(url, PROMPTS[0])
        shutil.copy2(shard, away)
        if damage == "gone":
            shard.rename(away)
        else:
            with shard.open("r+b") as file:
                file.truncate(100_000)
        failed = asked(url, PROMPTS[0])
        held = [gauge(url, name) for name in ("num_requests_open", "kv_cached_tokens")]
        reads = gauge(url, 'experts_total{from="read"}')
        if damage == "gone":  # and comes back, as that of a network drive does
            away.rename(shard)
            assert asked(url, PROMPTS[0]).json()["choices"] == before.json()["choices"]
    assert failed.status_code == 500
    assert f"{SHARD} cannot be read" in failed.json()["error"]["message"]
    assert held == [0, 0]
    assert reads > 0
