"""Progress of a verification: a line that is renewed on a terminal, and one at times elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from k31ctl.fetch.events import Event, Progress
from k31ctl.fetch.watch import Watch
from k31ctl.report.fetch_progress import Lines

_TERMINAL_S: Final = 0.25
_PLAIN_S: Final = 10.0


@contextmanager
def verify_progress(
    *, silent: bool, stream: TextIO | None = None, every_s: float | None = None
) -> Iterator[Watch]:
    """Show on standard error how far a verification is; silent where a program reads."""
    if silent:
        yield Watch()
        return
    shown = _Shown(stream or sys.stderr, every_s)
    try:
        yield shown
    finally:
        shown.clear()


class _Shown(Watch):
    """Counts bytes and draws them a few times a second; told from any thread."""

    def __init__(self, stream: TextIO, every_s: float | None) -> None:
        self._lines = Lines(stream)
        usual_s = _TERMINAL_S if stream.isatty() else _PLAIN_S
        self._every_s = usual_s if every_s is None else every_s
        self._lock = threading.Lock()
        self._what, self._done, self._total = "", 0, 0
        self._begun_s = self._drawn_s = time.monotonic()

    def begin(self, what: str, num_bytes: int) -> None:
        with self._lock:
            self._what, self._done, self._total = what, 0, num_bytes
            self._begun_s = self._drawn_s = time.monotonic()

    def advance(self, num_bytes: int) -> None:
        with self._lock:
            self._done += num_bytes
            now = time.monotonic()
            if now - self._drawn_s < self._every_s:
                return
            self._drawn_s = now
            rate = self._done / max(now - self._begun_s, 1e-6)
            left = max(0, self._total - self._done)
            self._lines.show(
                Progress(
                    bytes_done=self._done,
                    bytes_downloaded=0,
                    bytes_total=self._total,
                    rate_bytes_per_s=rate,
                    eta_s=left / rate if rate > 0 else None,
                    path_bytes=(),
                    what=self._what,
                )
            )

    def tell(self, event: Event) -> None:
        with self._lock:
            self._lines.show(event)

    def clear(self) -> None:
        """Remove the line that was drawn."""
        with self._lock:
            self._lines.clear()
