"""Looks at the server and at the GPUs now and then while a stage runs, from a thread of its own."""

import threading
from collections.abc import Callable
from typing import Final

from k31ctl.bench.check import Line
from k31ctl.bench.gauges import Sample, read_sample
from k31ctl.bench.gpus import GpuMeter, GpuUse
from k31ctl.bench.trouble import TroubleError

_EVERY_S: Final = 1.0
_TIMEOUT_S: Final = 2.0


class Sampler:
    """Looks once a second; without ``line`` not at a server, without ``meter`` not at GPUs."""

    def __init__(
        self, line: Line | None, meter: GpuMeter | None, *, clock: Callable[[], float]
    ) -> None:
        self._line, self._meter, self._clock = line, meter, clock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._start_s = 0.0
        self.samples: list[Sample] = []

    def begin(self) -> None:
        """Begin to look, from a first look at once."""
        self._start_s = self._clock()
        if self._meter is not None:
            self._meter.begin(self._start_s)
        if self._line is not None or self._meter is not None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def end(self, *, output_tokens: int) -> GpuUse | None:
        """Stop to look, and return what the GPUs did."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_TIMEOUT_S + _EVERY_S)
        if self._meter is None:
            return None
        return self._meter.end(self._clock(), output_tokens=output_tokens)

    def _run(self) -> None:
        next_s = self._start_s
        while not self._stop.is_set():
            if self._meter is not None:
                self._meter.look()
            if self._line is not None:
                self._look_at(self._line)
            next_s = max(next_s + _EVERY_S, self._clock())
            self._stop.wait(next_s - self._clock())

    def _look_at(self, line: Line) -> None:
        at_s = self._clock() - self._start_s
        try:
            answer = line.ask("GET", f"{line.endpoint.root}/metrics", timeout_s=_TIMEOUT_S)
        except TroubleError:
            return
        sample = read_sample(answer.body, at_s=at_s)
        if sample is not None:
            self.samples.append(sample)
