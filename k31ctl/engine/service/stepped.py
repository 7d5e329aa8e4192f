"""A generator for the service out of a model that goes on step by step, in a thread of its own."""

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, Protocol

from k31ctl.engine.service.generator import (
    GeneratedToken,
    Generation,
    GenerationError,
    GenerationStoppedError,
    Load,
)


class Said(NamedTuple):
    """One token of one piece of work, and whether it was the last."""

    number: int
    token: GeneratedToken
    is_last: bool


class Failed(NamedTuple):
    """One piece of work that cannot go on, and why; it is dropped already."""

    number: int
    error: Exception


class Stepper(Protocol):
    """A model with many pieces of work under way; one thread alone calls it, but for ``load``."""

    def submit(self, number: int, work: Generation) -> None:
        """Take a piece of work; it may wait for a slot."""

    def cancel(self, number: int) -> None:
        """Drop a piece of work, if it is still there, and free what it holds."""

    def step(self) -> Iterable[Said | Failed]:
        """Go on once with all that is under way; what is raised ends all of it."""

    def load(self) -> Load:
        """What is in use now."""


class _Job:
    """One piece of work, and the way back to the client that waits for it."""

    def __init__(self, number: int, work: Generation) -> None:
        self.number, self.work = number, work
        self._loop = asyncio.get_running_loop()
        self.told: asyncio.Queue[GeneratedToken | Exception | None] = asyncio.Queue()

    def tell(self, *told: GeneratedToken | Exception | None) -> None:
        """Pass something on to the client's loop; one that has been closed listens no more."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take, told)

    def _take(self, told: Iterable[GeneratedToken | Exception | None]) -> None:
        for one in told:
            self.told.put_nowait(one)


class SteppedGenerator:
    """Runs a stepper for as long as there is work; to be closed at the end."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self._numbers = itertools.count()
        self._jobs: dict[int, _Job] = {}
        self._orders: deque[Callable[[], None]] = deque()
        self._has_orders = threading.Condition()
        self._waiting: set[_Job] = set()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def load(self) -> Load:
        """What is in use now."""
        return self._stepper.load()

    def close(self) -> None:
        """End the thread, after the step it is in."""
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        """End all work without waiting for the step that is under way; see ``Generator``."""
        self._is_closing = True
        self._order(lambda: None)
        for job in tuple(self._waiting):
            job.tell(GenerationStoppedError("the server is stopping"))

    async def generate(self, work: Generation) -> AsyncGenerator[GeneratedToken, None]:
        """Yield the tokens of one piece of work; see ``Generator``."""
        if self._is_closing:
            raise GenerationStoppedError("the server is stopping")
        job = _Job(next(self._numbers), work)
        self._waiting.add(job)
        self._order(lambda: self._begin(job))
        has_ended = False
        try:
            while (told := await job.told.get()) is not None:
                if isinstance(told, GenerationStoppedError):
                    raise told
                if isinstance(told, Exception):
                    raise GenerationError(str(told)) from told
                yield told
            has_ended = True
        finally:
            self._waiting.discard(job)
            if not has_ended and not self._is_closing:
                await self._dropped(job)

    async def _dropped(self, job: _Job) -> None:
        """Return once the model's thread has let go of a job, or is told to let go of all."""
        self._waiting.add(job)
        self._order(lambda: self._drop(job))
        try:
            while (told := await job.told.get()) is not None:
                if isinstance(told, GenerationStoppedError):
                    return
        finally:
            self._waiting.discard(job)

    def _order(self, order: Callable[[], None]) -> None:
        with self._has_orders:
            self._orders.append(order)
            self._has_orders.notify()

    def _run(self) -> None:
        while not self._is_closing:
            with self._has_orders:
                while not self._orders and not self._jobs:
                    self._has_orders.wait()
                orders = [self._orders.popleft() for _ in range(len(self._orders))]
            for order in orders:
                order()
            if self._jobs and not self._is_closing:
                self._step()

    def _step(self) -> None:
        try:
            told = tuple(self._stepper.step())
        except Exception as error:  # noqa: BLE001  (it ends requests, not the service)
            for failed in tuple(self._jobs.values()):
                failed.tell(error)
                self._forget(failed)
            return
        for one in told:
            if (job := self._jobs.get(one.number)) is None:
                continue
            if isinstance(one, Failed):
                job.tell(one.error)
                del self._jobs[one.number]
                continue
            job.tell(one.token, *((None,) if one.is_last else ()))
            if one.is_last:
                del self._jobs[one.number]

    def _begin(self, job: _Job) -> None:
        self._jobs[job.number] = job
        try:
            self._stepper.submit(job.number, job.work)
        except Exception as error:  # noqa: BLE001  (it is this request's alone)
            job.tell(error)
            self._forget(job)

    def _drop(self, job: _Job) -> None:
        self._forget(job)
        job.tell(None)

    def _forget(self, job: _Job) -> None:
        if self._jobs.pop(job.number, None) is not None:
            self._stepper.cancel(job.number)
