"""How fast it goes: the progress of running work, and a rate that is measured beforehand."""

import queue
import time
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from k31ctl.fetch.events import Event, Progress
from k31ctl.fetch.hub import Hub, HubFile, Snapshot

TICK_S: Final = 0.25
RATE_WINDOW_S: Final = 10.0
PROBE_BYTES: Final = 4 * 1024 * 1024
_PROBE_S: Final = 0.25


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
                yield work.events.get(timeout=TICK_S if running else 0)
                if time.monotonic() - marks[-1][0] < TICK_S:
                    continue
            except queue.Empty:
                if not running:
                    return
            marks.append((time.monotonic(), work.bytes_downloaded))
            while marks[-1][0] - marks[0][0] > RATE_WINDOW_S:
                marks.pop(0)
            yield _progress(work, bytes_total, marks)
    finally:
        work.stop()


def measured_rate(hub: Hub, snapshot: Snapshot, files: Sequence[HubFile]) -> float | None:
    """Read the begin of the largest file for a moment, on one connection, in bytes per second."""
    largest = max(files, key=lambda file: file.size_bytes)
    num_bytes = min(largest.size_bytes, PROBE_BYTES)
    taken, start = 0, time.monotonic()
    for piece in hub.chunks(snapshot, largest, 0, num_bytes):
        taken += len(piece)
        if time.monotonic() - start > _PROBE_S:
            break
    return taken / max(time.monotonic() - start, 1e-6) if taken else None


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
