"""Progress: one line that is renewed on a terminal, and a line now and then elsewhere."""

import os
import shutil
import time
from typing import Final, TextIO

from k31ctl import units
from k31ctl.fetch.events import (
    Event,
    FileFailed,
    FileStarted,
    FileVerified,
    Mismatched,
    Paused,
    Progress,
    Retried,
    Waiting,
)
from k31ctl.report.durations import duration

_EVERY_S: Final = 10.0
_BAR: Final = 20
# Name, bar and size of the whole leave room for rate and time in 80 columns.
_WHOLE_NAME, _WHOLE_BAR = 18, 10
_MOST_FILES: Final = 8


class Lines:
    """Writes events to a stream, as bars where it is a terminal.

    What the stream does not take is dropped, for good where it is full or closed: a download does
    not end because nobody can read how far it is.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._is_terminal = stream is not None and stream.isatty()
        self._num_drawn = 0
        self._last = time.monotonic()

    def show(self, event: Event) -> None:
        """Write one event."""
        if isinstance(event, Progress):
            self._progress(event)
            return
        text = event_text(event)
        if text:
            self.clear()
            self.write(text + "\n")

    def write(self, text: str) -> None:
        """Write text as it is."""
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except BlockingIOError:  # a terminal that is busy just now
            pass
        except OSError:
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), self._stream.fileno()
            )  # or Python tries again

    def clear(self) -> None:
        """Remove the bars."""
        if self._num_drawn:
            self.write(f"\x1b[{self._num_drawn}A\x1b[J")
            self._num_drawn = 0

    def _progress(self, event: Progress) -> None:
        if self._is_terminal:
            self.clear()
            width = shutil.get_terminal_size().columns - 1
            drawn = [line[:width] for line in progress_lines(event)]
            self.write("".join(f"{line}\n" for line in drawn))
            self._num_drawn = len(drawn)
        elif time.monotonic() - self._last >= _EVERY_S:
            self._last = time.monotonic()
            self.write(progress_lines(event)[-1] + "\n")


def progress_lines(event: Progress) -> list[str]:
    """Return a bar for each file in flight, and the whole in the last line."""
    lines = [_line(path, done, size) for path, done, size in event.path_bytes[:_MOST_FILES]]
    eta = f", {duration(event.eta_s)} left" if event.eta_s is not None else ""
    rate = units.show(event.rate_bytes_per_s, "B/s")
    total = _line(
        event.what, event.bytes_done, event.bytes_total, name_width=_WHOLE_NAME, bar=_WHOLE_BAR
    )
    return [*lines, f"{total}  {rate}{eta}"]


def event_text(event: Event) -> str | None:
    """Return an event as a line, None where it is not worth one."""
    text = None
    match event:
        case Waiting():
            text = f"waiting: {event.holder} has the folder"
        case FileStarted() if event.is_check:
            text = f"checking {event.path}, which is in the folder"
        case FileStarted() if event.bytes_reused:
            text = f"going on with {event.path} after {units.show(event.bytes_reused, 'B')}"
        case FileVerified() if not event.reused:
            done = "proven" if event.is_published else "written"
            text = f"{done} {event.path}  {units.show(event.size_bytes, 'B')}"
        case Retried():
            wait = f" in {duration(event.wait_s)}" if event.wait_s else ""
            text = f"again{wait}: {event.path}: {event.reason}"
        case Mismatched():
            text = f"wrong bytes: {event.path}: {event.reason}"
        case Paused():
            text = f"paused for {duration(event.wait_s)}, as --between says"
        case FileFailed():
            text = f"failed {event.path}: {event.what}"
    return text


def _line(path: str, done: int, size: int, *, name_width: int = 34, bar: int = _BAR) -> str:
    fraction = done / size if size else 1.0
    drawn = ("#" * int(bar * fraction)).ljust(bar, ".")
    name = path if len(path) <= name_width else "..." + path[3 - name_width :]
    return f"{name:<{name_width}} {drawn} {fraction:6.1%} {units.show(size, 'B'):>8}"
