"""``python -m k31ctl``, and what the installed program calls."""

import io
import os
import signal
import sys

_INTERRUPTED = 130
_HUNG_UP = 129
_TERMINATED = 143
_STDERR = 2


def start() -> None:
    """Run the program; an interrupt ends it without a word, even while it is being imported."""
    interruptible = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    if interruptible:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))  # nothing to clean up yet
    from k31ctl.cli.main import main  # noqa: PLC0415  all imports come after the handler

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _fill_closed_streams()
    _buffer_output()
    # As an exit and not a death, so that half-written files go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        signal.signal(signal.SIGHUP, lambda *_: sys.exit(_HUNG_UP))
    main()


def _fill_closed_streams() -> None:
    """Let no file of ours get the number of a standard stream that was closed before we began."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_STDERR, "w")


def _buffer_output() -> None:
    """Have standard output take an answer whole: a bare file, as PYTHONUNBUFFERED leaves it, may
    take less than it is given, and nobody is told.
    """
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        whole = io.BufferedWriter(raw)
        sys.stdout = io.TextIOWrapper(whole, encoding=sys.stdout.encoding, line_buffering=True)


if __name__ == "__main__":
    start()
