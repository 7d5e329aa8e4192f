"""A generator that says what a script tells it, and the service with it on loopback."""

import asyncio
import re
import threading
import time
import urllib.request
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from k31ctl.core.chat_format.segments import Segment
from k31ctl.core.model import Vision
from k31ctl.engine.service.app import Service
from k31ctl.engine.service.generator import (
    GeneratedToken,
    Generation,
    GenerationError,
    GenerationStoppedError,
    Generator,
    Load,
)
from k31ctl.engine.service.limits import Limits
from k31ctl.engine.service.server import StoppingServer
from k31ctl.engine.service.stepped import Failed, Said, SteppedGenerator
from k31ctl.engine.service.tasks import ServedModel
from k31ctl.engine.tokenizer import Tokenizer, load_tokenizer
from tests.engine.small_tokenizer import write_small_tokenizer

CONTEXT = 8192
FAILS = -1
LONGEST_WAIT_S = 240
VISION = Vision(
    hidden_size=16, intermediate_size=16, num_layers=1, num_heads=1, qkv_hidden_size=16,
    patch_size=14, merge_height=2, merge_width=2,
)  # fmt: skip
Script = Callable[[Generation], Sequence[int]]
_SPELT = re.compile(r"(<\|open\|>|<\|close\|>|<\|sep\|>|<\|end_of_msg\|>)")


def small_model(folder: Path, *, vision: Vision | None = VISION) -> ServedModel:
    write_small_tokenizer(folder)
    tokenizer = load_tokenizer(folder)
    return ServedModel(name="tiny", tokenizer=tokenizer, vision=vision, max_model_tokens=CONTEXT)


def ids_of(tokenizer: Tokenizer, spelt: str) -> list[int]:
    """The ids of an answer in which the markers are spelt out."""
    return tokenizer.encode_prompt(
        Segment(piece, bool(_SPELT.fullmatch(piece))) for piece in _SPELT.split(spelt)
    )


class ScriptedGenerator:
    """Tokens of a script, at most ``num_slots`` answers at a time; every place is accounted for."""

    def __init__(self, script: Script, *, num_slots: int = 8, pause_s: float = 0.0) -> None:
        self._script, self._pause_s, self._num_slots = script, pause_s, num_slots
        self._slots = asyncio.Semaphore(num_slots)
        self._running: dict[int, int] = {}
        self._num_waiting = 0
        self._is_stopped = False
        self.num_generated = 0
        self.seen: deque[Generation] = deque(maxlen=4)

    async def generate(self, work: Generation) -> AsyncGenerator[GeneratedToken, None]:
        self.seen.append(work)
        self._num_waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._num_waiting -= 1
        self._running[id(work)] = len(work.prompt_ids)
        try:
            for token in self._script(work)[: work.sampling.max_tokens]:
                await asyncio.sleep(self._pause_s)
                if self._is_stopped:
                    raise GenerationStoppedError("stopped")
                if token == FAILS:
                    raise GenerationError("not a number")
                self.num_generated += 1
                wanted = work.sampling.num_top_logprobs
                yield GeneratedToken(token, None if wanted is None else -0.5)
                if token in work.sampling.stop_ids:
                    return
        finally:
            del self._running[id(work)]
            self._slots.release()

    def stop(self) -> None:
        self._is_stopped = True

    def load(self) -> Load:
        return Load(
            num_running=len(self._running),
            num_waiting=self._num_waiting,
            num_slots=self._num_slots,
            num_cached_tokens=sum(self._running.values()),
            num_cache_tokens=CONTEXT * self._num_slots,
        )


class ScriptedStepper:
    """The same for a model that goes step by step; one more thread must not matter."""

    def __init__(self, script: Script, *, num_slots: int = 8) -> None:
        self._script, self._num_slots = script, num_slots
        self._waiting: dict[int, Generation] = {}
        self._running: dict[int, deque[int]] = {}
        self._num_cached: dict[int, int] = {}
        self.num_steps = 0

    def submit(self, number: int, work: Generation) -> None:
        if not work.prompt_ids:
            raise ValueError("the prompt is empty")
        self._waiting[number] = work

    def cancel(self, number: int) -> None:
        self._waiting.pop(number, None)
        self._running.pop(number, None)
        self._num_cached.pop(number, None)

    def step(self) -> list[Said | Failed]:
        self.num_steps += 1
        while self._waiting and len(self._running) < self._num_slots:
            number = next(iter(self._waiting))
            work = self._waiting.pop(number)
            self._running[number] = deque(self._script(work)[: work.sampling.max_tokens])
            self._num_cached[number] = len(work.prompt_ids)
        said: list[Said | Failed] = []
        for number, left in tuple(self._running.items()):
            token = left.popleft()
            if token == FAILS:
                raise FloatingPointError("not a number")
            said.append(Said(number, GeneratedToken(token), not left))
            if not left:
                self.cancel(number)
        return said

    def load(self) -> Load:
        return Load(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            num_slots=self._num_slots,
            num_cached_tokens=sum(tuple(self._num_cached.values())),
            num_cache_tokens=CONTEXT * self._num_slots,
        )


@contextmanager
def stepped(stepper: ScriptedStepper) -> Iterator[SteppedGenerator]:
    generator = SteppedGenerator(stepper)
    try:
        yield generator
    finally:
        generator.close()


@contextmanager
def served(
    model: ServedModel,
    generator: Generator,
    *,
    limits: Limits | None = None,
    api_key: str | None = None,
) -> Iterator[str]:
    """The address of the service, run by a real server on loopback."""
    service = Service(model, generator, limits=limits or Limits(), api_key=api_key)
    server = StoppingServer(service)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def gauge(url: str, name: str) -> float:
    """One value of the metrics; names with labels are given with them."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    return next((float(x.split()[-1]) for x in lines if x.startswith(f"k31ctl:{name} ")), 0.0)


def wait_until(holds: Callable[[], bool]) -> None:
    """Return once something holds; fail where it does not within what a busy machine may take."""
    pause, end = threading.Event(), time.monotonic() + LONGEST_WAIT_S
    while not holds():
        assert time.monotonic() < end, "it has not come to hold"
        pause.wait(0.02)
