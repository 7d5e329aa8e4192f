"""A model in its own thread, without HTTP around it."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from k31ctl.engine.service.generator import (
    Generation,
    GenerationError,
    GenerationStoppedError,
    Sampling,
)
from k31ctl.engine.service.stepped import Failed, Said, SteppedGenerator
from tests.engine.scripted import FAILS, LONGEST_WAIT_S, ScriptedStepper, stepped


def work(*prompt: int, max_tokens: int = 100) -> Generation:
    return Generation(prompt_ids=prompt, images=(), sampling=Sampling(max_tokens=max_tokens))


def counting(asked: Generation) -> Sequence[int]:
    """As many tokens as the prompt's first id says, or a failure at 0."""
    return range(1, asked.prompt_ids[0] + 1) if asked.prompt_ids[0] else [1, FAILS]


async def ids(generator: SteppedGenerator, asked: Generation) -> list[int]:
    return [token.id async for token in generator.generate(asked)]


def test_each_gets_its_own_tokens() -> None:
    async def all_of_them() -> list[list[int]]:
        return await asyncio.gather(*(ids(generator, work(n)) for n in range(1, 40)))

    with stepped(ScriptedStepper(counting, num_slots=4)) as generator:
        assert asyncio.run(all_of_them()) == [list(range(1, n + 1)) for n in range(1, 40)]


def test_closing_has_freed_everything_when_it_returns() -> None:
    stepper = ScriptedStepper(counting, num_slots=1)

    async def leave_early() -> tuple[int, int]:
        async with aclosing(generator.generate(work(10**6, max_tokens=10**6))) as tokens:
            assert (await anext(tokens)).id == 1
            held = stepper.load().num_cached_tokens
        return held, stepper.load().num_cached_tokens

    with stepped(stepper) as generator:
        assert asyncio.run(leave_early()) == (1, 0)


def test_without_work_no_step_is_made() -> None:
    stepper = ScriptedStepper(counting)
    with stepped(stepper) as generator:
        assert asyncio.run(ids(generator, work(3))) == [1, 2, 3]
        made = stepper.num_steps
        assert asyncio.run(asyncio.sleep(0.05, made)) == stepper.num_steps == 3


def test_stopping_waits_for_no_step() -> None:
    """The step under way goes on for as long as it likes; who waits for it is told at once."""
    begun, may_end = threading.Event(), threading.Event()

    class Slow(ScriptedStepper):
        def step(self) -> list[Said | Failed]:
            begun.set()
            may_end.wait(LONGEST_WAIT_S)
            return super().step()

    async def stop_within_a_step() -> None:
        waiting = [asyncio.create_task(ids(generator, work(n))) for n in (3, 4)]
        await asyncio.to_thread(begun.wait, LONGEST_WAIT_S)
        generator.stop()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in found] == [GenerationStoppedError] * 2
        with pytest.raises(GenerationStoppedError):
            await ids(generator, work(2))
        assert not may_end.is_set()
        may_end.set()

    with stepped(Slow(counting)) as generator:
        asyncio.run(stop_within_a_step())


@pytest.mark.parametrize("asked", [work(0), work()])
def test_after_a_failure_the_next_is_served(asked: Generation) -> None:
    with stepped(ScriptedStepper(counting)) as generator:
        with pytest.raises(GenerationError):
            asyncio.run(ids(generator, asked))
        assert asyncio.run(ids(generator, work(2))) == [1, 2]
        assert generator.load().num_running == 0
