"""Step service: clients of the real endpoint, on this machine, over the loaded model."""

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from math import nan
from typing import Any, Final

import httpx

from k31ctl.bench.images import square
from k31ctl.bench.prometheus import parse_metrics
from k31ctl.core.ladder import Measure, measure
from k31ctl.core.vision import image_tokens
from k31ctl.engine.service.app import Service
from k31ctl.engine.service.generator import Generator
from k31ctl.engine.service.limits import Limits
from k31ctl.engine.service.model_stepper import opened
from k31ctl.engine.service.server import StoppingServer
from k31ctl.engine.service.tasks import ServedModel
from k31ctl.smoke.session import CONTEXT, NUM_REQUESTS, Found, Session, Skipped

_NAME: Final = "smoke"
_SAID: Final = 24
_PATIENCE_S: Final = 1200.0
_GAUGES: Final = ("num_requests_open", "num_requests_running", "kv_cached_tokens")
_MARKERS: Final = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
_PROMPTS: Final = ("Why is the sky blue?", "Count from one to ten, in words and in order.")
_WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather for a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
_TALK: Final = (
    {"role": "user", "content": "Do I need an umbrella in Oslo?"},
    {
        "role": "assistant",
        "reasoning_content": "The weather there decides.",
        "content": "",
        "tool_calls": [
            {
                "id": "get_weather:0",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "get_weather:0", "content": "rain"},
)
_SIDE: Final = 56
_RED: Final = b"\xff\0\0"


def service(session: Session) -> Found:
    """Reasoning, tools, a stream, two clients at once, one that leaves, and an image."""
    model, choice = session.model(session.layers)
    if not choice.has_ends:
        raise Skipped("the embedding and the head are not in this part of a checkpoint")
    served, generator = opened(
        choice.checkpoint,
        choice.target,
        name=_NAME,
        num_slots=NUM_REQUESTS,
        num_tokens=choice.plan.load.num_tokens,
        model=model,
    )
    faults: list[str] = []
    with (
        closing(generator),
        _listening(served, generator) as url,
        httpx.Client(base_url=url, timeout=_PATIENCE_S) as client,
    ):
        faults += _talk(client)
        measures, apart = _together(client, is_exact=session.is_exact)
        image_faults, notes = _image(client, served)
        faults += (*apart, *_leaves(client), *image_faults)
    detail = "reasoning, tool calls, a stream, two clients at once, one that left"
    return Found(detail=detail, measures=measures, notes=notes, faults=tuple(faults))


@contextmanager
def _listening(served: ServedModel, generator: Generator) -> Iterator[str]:
    """The address of the service while it runs."""
    server = StoppingServer(Service(served, generator, limits=Limits(), api_key=None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def _posted(client: httpx.Client, **body: Any) -> dict[str, Any]:
    """The answer to a chat; raises ValueError for any other than success."""
    sent = {"max_tokens": _SAID, "temperature": 0, "reasoning_effort": "low", **body}
    response = client.post("/v1/chat/completions", json=sent)
    if response.status_code != 200:  # noqa: PLR2004
        raise ValueError(f"status {response.status_code}: {response.text[:160]}")
    found: dict[str, Any] = response.json()
    return found


def _talk(client: httpx.Client) -> list[str]:
    """A conversation with reasoning and a tool call goes in; what comes out has its form."""
    faults = []
    asked = {"messages": list(_TALK), "tools": [_WEATHER]}
    counted = client.post("/tokenize", json=asked).json()["count"]
    without = client.post("/tokenize", json={"messages": [_TALK[0]], "tools": [_WEATHER]}).json()
    if counted <= without["count"]:
        faults.append("reasoning and tool call of an earlier turn are not in the prompt")
    answer = _posted(client, **asked)
    message, usage = answer["choices"][0]["message"], answer["usage"]
    if message.get("reasoning_content") != message.get("reasoning"):
        faults.append("reasoning and reasoning_content differ")
    text = "".join(str(message.get(key) or "") for key in ("reasoning", "content"))
    faults += [f"{marker} leaks into the answer" for marker in _MARKERS if marker in text]
    if not 0 < usage["completion_tokens"] <= _SAID:
        faults.append(f"{usage['completion_tokens']} tokens were said, of at most {_SAID}")
    streamed = _streamed(client, asked)
    for key in ("reasoning_content", "content"):
        if streamed.get(key, "") != (message.get(key) or ""):
            faults.append(f"a stream has other {key} than the whole answer")
    return faults


def _streamed(client: httpx.Client, asked: Mapping[str, Any]) -> dict[str, str]:
    """What the pieces of a stream say together, by their kind."""
    body = {"max_tokens": _SAID, "temperature": 0, "reasoning_effort": "low", "stream": True}
    found: dict[str, str] = {}
    with client.stream("POST", "/v1/chat/completions", json={**asked, **body}) as response:
        for line in response.iter_lines():
            data = line.removeprefix("data: ")
            if not data or data == "[DONE]":
                continue
            for choice in json.loads(data).get("choices", ()):
                for key, text in choice["delta"].items():
                    if key in ("reasoning_content", "content") and text:
                        found[key] = found.get(key, "") + text
    return found


def _together(client: httpx.Client, *, is_exact: bool) -> tuple[tuple[Measure, ...], list[str]]:
    """Two requests say together what each says alone, and alone the same again."""

    def said(prompt: str) -> tuple[str, tuple[float, ...]]:
        body = {"prompt": prompt, "max_tokens": _SAID, "temperature": 0, "logprobs": 1}
        response = client.post("/v1/completions", json={**body, "ignore_eos": True})
        response.raise_for_status()
        choice = response.json()["choices"][0]
        return choice["text"], tuple(choice["logprobs"]["token_logprobs"])

    begun = time.monotonic()
    before = [said(prompt) for prompt in _PROMPTS]
    seconds = time.monotonic() - begun
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(said, _PROMPTS))
    after = [said(prompt) for prompt in _PROMPTS]
    faults = []
    if before != after:
        faults.append("a request says other things after two ran at once: a slot leaks")
    if is_exact and [text for text, _ in before] != [text for text, _ in both]:
        faults.append("two requests at once say other things than alone")
    gap = max(
        abs(a - b)
        for (_, alone), (_, beside) in zip(before, both, strict=True)
        for a, b in zip(alone, beside, strict=True)
    )
    limit = 1e-3 if is_exact else None
    rate = len(_PROMPTS) * _SAID / seconds
    return (
        measure("log probabilities, gap to alone", gap, at_most=limit),
        measure("one request alone", rate, unit="tokens/s"),
    ), faults


def _leaves(client: httpx.Client) -> list[str]:
    """A client that hangs up gives back its slot and its pages."""
    body = {"prompt": _PROMPTS[0], "max_tokens": CONTEXT // 2, "temperature": 0}
    asked = {**body, "stream": True, "ignore_eos": True}
    with client.stream("POST", "/v1/completions", json=asked) as response:
        response.raise_for_status()
        pieces = response.iter_bytes()  # kept, as one that is dropped hangs up
        next(pieces)
        if not _gauges(client)["num_requests_open"]:
            return ["a stream that has begun does not count as open"]
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        held = _gauges(client)
        if not any(held.values()):
            return []
        time.sleep(0.05)
    return [f"{name} is still {value:g} after all clients left" for name, value in held.items()]


def _gauges(client: httpx.Client) -> dict[str, float]:
    values = parse_metrics(client.get("/metrics").text)
    return {name: values.get(f"k31ctl:{name}", nan) for name in _GAUGES}


def _image(client: httpx.Client, served: ServedModel) -> tuple[list[str], tuple[str, ...]]:
    """An image costs what its size says; skipped where the engine computes text alone."""
    url = "data:image/png;base64," + base64.b64encode(square(_SIDE, _RED)).decode()
    text = {"type": "text", "text": "What colour is this?"}
    parts = [{"type": "image_url", "image_url": {"url": url}}, text]
    sent = {"messages": [{"role": "user", "content": parts}], "max_tokens": 4}
    response = client.post("/v1/chat/completions", json=sent)
    if served.vision is None:
        if response.status_code != 400:  # noqa: PLR2004
            return [f"an image is answered with {response.status_code} without a vision tower"], ()
        return [], ("image: skipped, the engine computes text alone and refuses it with 400",)
    if response.status_code != 200:  # noqa: PLR2004
        return [f"an image is answered with {response.status_code}: {response.text[:160]}"], ()
    plain = _posted(client, messages=[{"role": "user", "content": [text]}], max_tokens=4)
    cost = response.json()["usage"]["prompt_tokens"] - plain["usage"]["prompt_tokens"]
    least = image_tokens(served.vision, width=_SIDE, height=_SIDE).num_tokens
    if cost < least:
        return [f"an image of {_SIDE} x {_SIDE} adds {cost} tokens, not {least}"], ()
    return [], (f"image: {_SIDE} x {_SIDE} adds {cost} tokens with its markers",)
