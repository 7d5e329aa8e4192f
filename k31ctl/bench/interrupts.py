"""An interrupt that is noted and acted on between two steps, so that nothing measured is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether someone asked to stop."""

    def __init__(self) -> None:
        self.is_set = False

    def note(self, _number: int, _frame: FrameType | None) -> None:
        """Remember a first interrupt; a second one stops at once."""
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True


@contextmanager
def noted_interrupt() -> Iterator[Interrupt]:
    """Note interrupts inside the block; elsewhere than in the main thread there are none."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, interrupt.note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def raised_interrupt() -> Iterator[None]:
    """Let an interrupt end the block at once, inside one where interrupts are noted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
