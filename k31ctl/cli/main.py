"""The app, and the one place where a failure becomes an exit code."""

import os
import sys
from collections.abc import Sequence
from typing import Final

import typer

from k31ctl.cli import profiles
from k31ctl.cli.inspect import inspect
from k31ctl.cli.options import DebugOpt, VersionOpt
from k31ctl.cli.plan import plan
from k31ctl.cli.validate import validate
from k31ctl.errors import K31Error
from k31ctl.report.failure import show_failure
from k31ctl.report.version import show_version

_INTERRUPTED: Final = 130
_BROKEN_PIPE: Final = 141  # what a shell shows for a writer whose reader left

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
app.command()(plan)
app.command()(inspect)
app.command()(validate)
app.add_typer(profiles.app, name="profiles")


@app.callback(invoke_without_command=True)
def root(*, version: VersionOpt = False, debug: DebugOpt = False) -> None:
    """Say what Kimi K3.1 Pro and its relatives need on your own GPUs, exact where it can be."""
    if version:
        show_version()
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program: the one place where a failure becomes an exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, debug = _without_debug(given)
    try:
        _run(own)
    except K31Error as error:
        if debug:
            raise
        show_failure(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _run(arguments: list[str]) -> None:
    try:
        try:
            app(arguments, prog_name="k31ctl")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _leave_quietly()
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):
            _leave_quietly()
        raise


def _leave_quietly() -> None:
    """End without the complaint that Python makes when it flushes into a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(_BROKEN_PIPE)


def _without_debug(given: list[str]) -> tuple[list[str], bool]:
    """Return the arguments without ``--debug``, and whether it was there, up to a bare ``--``."""
    end = given.index("--") if "--" in given else len(given)
    own = [argument for argument in given[:end] if argument != "--debug"]
    return own + given[end:], len(own) < end
