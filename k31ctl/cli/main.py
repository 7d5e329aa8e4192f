"""The app, and the one place where a failure becomes an exit code."""

import os
import sys
from collections.abc import Sequence
from typing import Final

import typer

from k31ctl.cli import profiles
from k31ctl.cli.fetch import fetch
from k31ctl.cli.inspect import inspect
from k31ctl.cli.options import DebugOpt, VersionOpt
from k31ctl.cli.plan import plan
from k31ctl.cli.validate import validate
from k31ctl.cli.verify import verify
from k31ctl.errors import InputError, K31Error, UsageError
from k31ctl.report.failure import show_failure
from k31ctl.report.version import show_version

_INTERRUPTED: Final = 130
_BROKEN_PIPE: Final = 141  # what a shell shows for a writer whose reader left
# What typer raises for a mistake on the command line; only its subclasses have public names.
_Mistake: Final[type[Exception]] = typer.BadParameter.__base__  # type: ignore[assignment]

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
app.command()(plan)
app.command()(inspect)
app.command()(fetch)
app.command()(validate)
app.command()(verify)
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
    if sys.stdout is None:
        raise _unwritable("it is closed")
    # A name from a file may hold what no encoding has; it is shown escaped, as JSON escapes it.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = app(arguments, prog_name="k31ctl", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        sys.exit(_BROKEN_PIPE)
    except OSError as error:
        _drop_output()
        raise _unwritable((error.strerror or "it failed").lower()) from error
    except _Mistake as mistake:
        if not str(mistake) and not hasattr(mistake, "param"):
            sys.exit(UsageError.exit_code)  # no command was given, and the help is shown
        raise _usage_error(mistake) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    if code:
        sys.exit(code)


def _usage_error(mistake: BaseException) -> UsageError:
    """A mistake that typer found, in the three parts of every other one."""
    context = getattr(mistake, "ctx", None)
    command = context.command_path if context else "k31ctl"
    message = str(getattr(mistake, "message", "")) or str(mistake)
    parameter = getattr(mistake, "param", None)
    where = parameter.opts[0] if parameter is not None else command
    near = getattr(mistake, "possibilities", None)
    remedy = f"did you mean {' or '.join(near)}? " if near else ""
    return UsageError(
        (message[:1].lower() + message[1:]).rstrip("."),
        where=where,
        remedy=f"{remedy}{command} --help shows what there is",
    )


def _unwritable(why: str) -> InputError:
    return InputError(
        f"the answer cannot be written: {why}",
        where="standard output",
        remedy="send it to a terminal, a pipe or a file with room",
    )


def _drop_output() -> None:
    """Let Python's own last flush go nowhere, or it would complain a second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _without_debug(given: list[str]) -> tuple[list[str], bool]:
    """Return the arguments without ``--debug``, and whether it was there, up to a bare ``--``."""
    end = given.index("--") if "--" in given else len(given)
    own = [argument for argument in given[:end] if argument != "--debug"]
    return own + given[end:], len(own) < end
