"""A load in progress: one line that is renewed on a terminal, and one now and then elsewhere."""

import shutil
import time
from typing import Final, TextIO

from k31ctl.bench.events import Checked, Event, Progress, StageFinished, StageStarted
from k31ctl.report.durations import duration
from k31ctl.report.lines import printable

_EVERY_S: Final = 10.0


class ProgressLines:
    """Writes events to a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._is_drawn = False
        self._last_s = time.monotonic()

    def show(self, event: Event) -> None:
        """Write one event."""
        if isinstance(event, Progress):
            self._progress(event)
            return
        text = event_text(event)
        if text:
            self.clear()
            self._stream.write(printable(text) + "\n")
            self._stream.flush()

    def clear(self) -> None:
        """Remove the line that is renewed."""
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_drawn = False

    def _progress(self, event: Progress) -> None:
        text = progress_text(event)
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write("\r\x1b[K" + text[:width])
            self._is_drawn = True
        elif time.monotonic() - self._last_s >= _EVERY_S:
            self._last_s = time.monotonic()
            self._stream.write(text + "\n")
        self._stream.flush()


def progress_text(event: Progress) -> str:
    """Return how far a stage is, in words."""
    fraction = "" if event.fraction is None else f" {event.fraction:4.0%}"
    failed = f", {event.errors:,} failed" if event.errors else ""
    return (
        f"{event.name}{fraction} after {duration(event.elapsed_s)}: {event.completed:,} answered"
        f"{failed}, {event.in_flight:,} in flight, {event.tok_s:,.0f} events/s"
    )


def event_text(event: Event) -> str | None:
    """Return an event as a line, None where it is not worth one."""
    match event:
        case Checked():
            version = f" ({event.server.version})" if event.server.version else ""
            return f"{event.server.model}{version} answers at {event.server.url}"
        case StageStarted(num_stages=None):
            return f"{event.number}: {event.name}"
        case StageStarted() if event.num_stages != 1:
            return f"{event.number} of {event.num_stages}: {event.name}"
        case StageFinished() if not event.result.client.is_valid:
            return f"NOT VALID: {event.result.client.reasons[0]}"
        case _:
            return None
