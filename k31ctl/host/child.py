"""A server as a child of this process: its lines as they come, and its end, whoever wants it."""

import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from k31ctl.outside_json import parsed

_GRACE_S: Final = 30.0
_ASK_S: Final = 10.0
_MOST_BYTES: Final = 2**20
_ASKED: Final = (signal.SIGINT, signal.SIGTERM)


class Child:
    """A process in a group of its own, whose output and errors are one stream of lines."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def lines(self) -> Iterator[str]:
        """Every line until the process closes its output."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line.decode("utf-8", "replace").rstrip("\n")

    def ended(self) -> int:
        """Wait for the process; returns its exit status, negative for a signal."""
        return self._process.wait()

    def stop(self) -> None:
        """End the whole group: asked first, then made to; what outlives the server is made to."""
        asked = () if self._process.poll() is not None else _ASKED
        for number in asked:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_GRACE_S)
                break
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def served_models(port: int) -> tuple[str, ...] | None:
    """The names that the server on this machine answers to; None where it does not say."""
    url = f"http://127.0.0.1:{port}/v1/models"
    try:
        with urllib.request.urlopen(url, timeout=_ASK_S) as answer:
            document = parsed(answer.read(_MOST_BYTES))
        return tuple(str(entry["id"]) for entry in document["data"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
