"""A failure as three lines on standard error."""

import os
import sys

from k31ctl.errors import K31Error


def failure_text(error: K31Error) -> str:
    """Return what is wrong, where, and what to do, one line each."""
    return (
        f"error: {_one_line(error.what)}\n"
        f"   at: {_one_line(error.place)}\n"
        f"   do: {_one_line(error.remedy)}\n"
    )


def show_failure(error: K31Error) -> None:
    """Write a failure to standard error, where there is one that takes it."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(failure_text(error))
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # or Python tries again


def _one_line(text: str) -> str:
    """Return ``text`` without line ends or control codes, which may come from a file's content."""
    joined = " ".join(text.splitlines())
    return "".join(mark if mark.isprintable() else "?" for mark in joined)
