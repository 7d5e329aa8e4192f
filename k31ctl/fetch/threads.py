"""Threads of a piece of work, of which none may end unnoticed."""

import threading
import time
from collections.abc import Callable, Sequence

from k31ctl.fetch.trouble import StoppedError


class Threads:
    """Threads that end together: what nobody foresaw in one of them stops all and is raised."""

    def __init__(self, *, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._threads: list[threading.Thread] = []
        self._unforeseen: BaseException | None = None

    def start(self, works: Sequence[Callable[[], None]], *, name: str) -> None:
        """Start a thread for each piece of work."""
        started = [
            threading.Thread(target=self._run, args=(work,), name=f"{name}-{number}", daemon=True)
            for number, work in enumerate(works)
        ]
        self._threads += started
        for thread in started:
            thread.start()

    def are_running(self) -> bool:
        """Whether one of them has not ended."""
        return any(thread.is_alive() for thread in self._threads)

    def join(self, *, timeout_s: float) -> None:
        """Wait until all have ended, no longer than the timeout."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def raise_unforeseen(self) -> None:
        """Raise what ended one of them, if it was nothing that the work knows of."""
        if self._unforeseen is not None:
            raise self._unforeseen

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except StoppedError:
            return
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._unforeseen = error
            self._stop()
