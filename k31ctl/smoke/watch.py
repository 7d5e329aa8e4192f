"""Runs the steps in a child and watches it: one that hangs or dies is a result like any other."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from tempfile import TemporaryFile
from typing import IO, Final

from k31ctl.core.ladder import Rung, Status, Step
from k31ctl.smoke.task import Task, read_step, task_line

_MOST_SAID: Final = 300


def climb(
    task: Task, rungs: Sequence[Rung], *, keep_going: bool, timeout_s: float | None
) -> Generator[Step, None, None]:
    """Every step as it ends; after the first failure the others are skipped, unless told to go on.

    ``timeout_s`` replaces the patience of every step.
    """
    failed = ""
    with TemporaryFile() as log, closing(Child(task, log)) as child:
        for rung in rungs:
            if failed and not keep_going:
                yield _skipped(rung, f"not run: {failed} failed")
                continue
            step = child.run(rung, timeout_s=timeout_s or rung.timeout_s)
            if step.status is Status.FAIL:
                failed = failed or rung.id
            yield step


class Child:
    """The process that runs steps; a new one takes the place of one that had to be ended."""

    def __init__(self, task: Task, log: IO[bytes]) -> None:
        self._task, self._log = task, log
        self._process: subprocess.Popen[str] | None = None
        self._answers: IO[str] | None = None

    def run(self, rung: Rung, *, timeout_s: float) -> Step:
        """What the child says of a step, or what became of the child."""
        begun = time.monotonic()
        process, answers = self._started()
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(f"{rung.id}\n")
            process.stdin.flush()
        if not _readable(answers, timeout_s):
            self.close()
            why = f"hangs: no answer within {timeout_s:g} s; its process was ended"
            return _failed(rung, why, time.monotonic() - begun, self._last_words())
        line = answers.readline()
        if not line.endswith("\n"):
            code = process.wait()
            self.close()
            return _failed(rung, _death(code), time.monotonic() - begun, self._last_words())
        return read_step(line)

    def close(self) -> None:
        """End the child with all that it started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        if self._answers is not None:
            self._answers.close()
        self._process = self._answers = None

    def _started(self) -> tuple["subprocess.Popen[str]", IO[str]]:
        if self._process is None or self._answers is None:
            reading, writing = os.pipe()
            self._log.seek(0)
            self._log.truncate()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "k31ctl.smoke.worker", str(writing), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(writing,),
                start_new_session=True,
                text=True,
            )
            os.close(writing)
            self._answers = os.fdopen(reading, encoding="utf-8")
            assert self._process.stdin is not None
            self._process.stdin.write(task_line(self._task))
        return self._process, self._answers

    def _last_words(self) -> tuple[str, ...]:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4096))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return tuple(f"it said: {line[:_MOST_SAID]}" for line in lines[-1:])


def _readable(stream: IO[str], timeout_s: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


def _death(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    hint = ", as it does where memory runs out" if name == "SIGKILL" else ""
    return f"its process died of signal {-code} ({name}){hint}"


def _failed(rung: Rung, why: str, seconds: float, notes: tuple[str, ...]) -> Step:
    return Step(
        id=rung.id, name=rung.name, status=Status.FAIL, seconds=seconds, detail=why, notes=notes
    )


def _skipped(rung: Rung, why: str) -> Step:
    return Step(id=rung.id, name=rung.name, status=Status.SKIP, seconds=0.0, detail=why)
