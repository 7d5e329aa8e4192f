"""The progress of running work, a few times a second."""

import queue
import time
from collections.abc import Iterator
from typing import Final, Protocol

from k31ctl.fetch.events import Event, Progress

LOOK_S: Final = 0.02
TICK_S: Final = 0.25
RATE_WINDOW_S: Final = 10.0


class Work(Protocol):
    """Threads that fetch, and what they have to tell."""

    events: "queue.SimpleQueue[Event]"
    bytes_downloaded: int

    def start(self, connections: int) -> None:
        """Start the threads."""

    def stop(self) -> None:
        """End them; what is here is kept."""

    def is_running(self) -> bool:
        """Whether there is work that is not done."""

    def raise_unforeseen(self) -> None:
        """Raise what ended a thread, if it was nothing that the work knows of."""

    def bytes_done(self) -> int:
        """Bytes that are here."""

    def in_flight(self) -> tuple[tuple[str, int, int], ...]:
        """Path, bytes and size of the files in flight."""


def events_of(work: Work, *, bytes_total: int, connections: int) -> Iterator[Event]:
    """Yield what the work tells, and its progress a few times a second; stops it in the end."""
    work.start(connections)
    marks = [(time.monotonic(), 0)]
    try:
        while True:
            running = work.is_running()
            try:
                yield work.events.get(timeout=LOOK_S if running else 0)
            except queue.Empty:
                if not running:
                    work.raise_unforeseen()
                    return
            if time.monotonic() - marks[-1][0] < TICK_S:
                continue
            marks.append((time.monotonic(), work.bytes_downloaded))
            while marks[-1][0] - marks[0][0] > RATE_WINDOW_S:
                marks.pop(0)
            yield _progress(work, bytes_total, marks)
    finally:
        work.stop()


def _progress(work: Work, bytes_total: int, marks: list[tuple[float, int]]) -> Progress:
    seconds = marks[-1][0] - marks[0][0]
    rate = (marks[-1][1] - marks[0][1]) / seconds if seconds else 0.0
    done, in_flight = work.bytes_done(), work.in_flight()
    return Progress(
        bytes_done=done,
        bytes_downloaded=work.bytes_downloaded,
        bytes_total=bytes_total,
        rate_bytes_per_s=rate,
        eta_s=(bytes_total - done) / rate if rate else None,
        path_bytes=in_flight,
    )
