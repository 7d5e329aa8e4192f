"""The app, and the one place where a failure becomes an exit code."""

import os
import sys
from collections.abc import Collection, Sequence
from errno import ENOENT
from importlib import import_module
from typing import Final

import typer

from k31ctl.cli.mistakes import Mistake, is_help, refuse_empty_words, usage_error
from k31ctl.cli.options import DebugOpt, VersionOpt
from k31ctl.errors import InputError, K31Error, UsageError
from k31ctl.report.failure import show_failure
from k31ctl.report.version import show_version

_INTERRUPTED: Final = 130
_BROKEN_PIPE: Final = 141  # what a shell shows for a writer whose reader left

# In the order of the help. A command is the function of the same name in ``cli/NAME.py``; a group
# is the ``app`` there.
COMMANDS: Final = (
    "plan",
    "serve",
    "inspect",
    "fetch",
    "lint",
    "licence",
    "calibrate",
    "validate",
    "verify",
    "doctor",
    "smoke",
    "tiny",
)
GROUPS: Final = ("bench", "profiles")
# What a group does with a first argument that is none of its commands: ``bench URL``.
DEFAULTS: Final = {
    "bench": ("load", ("load", "conformance", "diff", "report", "compare", "hw")),
}


def app_with(names: Collection[str] = (*COMMANDS, *GROUPS)) -> typer.Typer:
    """Return the program with these commands; what the others need is not imported."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
    app.callback(invoke_without_command=True)(root)
    for name in COMMANDS:
        if name in names:
            app.command()(getattr(import_module(f"k31ctl.cli.{name}"), name))
    for name in GROUPS:
        if name in names:
            app.add_typer(import_module(f"k31ctl.cli.{name}").app, name=name)
    return app


def _with_default(arguments: Sequence[str]) -> list[str]:
    """Name the command of a group that its arguments leave out."""
    own = list(arguments)
    if own and own[0] in DEFAULTS:
        default, commands = DEFAULTS[own[0]]
        if own[1:] and own[1] not in (*commands, "--help"):
            own.insert(1, default)
    return own


def _app_for(arguments: Sequence[str]) -> typer.Typer:
    """Return the program with the command that is asked for, or with all where none is."""
    asked = next((text for text in arguments if not text.startswith("-")), "")
    return app_with((asked,)) if asked in (*COMMANDS, *GROUPS) else app_with()


def root(*, version: VersionOpt = False, debug: DebugOpt = False) -> None:
    """Say what Kimi K3.1 Pro and its relatives need on your own GPUs, exact where it can be."""
    if version:
        show_version()
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program: the one place where a failure becomes an exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, debug = _without_debug(given)
    own = _with_default(own)
    try:
        refuse_empty_words(own, num_command_words=2 if own and own[0] in GROUPS else 1)
        _run(own)
    except K31Error as error:
        if debug:
            import traceback

            traceback.print_exc()
        else:
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
        code = _answered(arguments)
    except BrokenPipeError:
        _drop_output()
        sys.exit(_BROKEN_PIPE)
    except OSError as error:
        if error.filename is not None:  # of a file that was opened: a bug, not the answer's
            raise
        raise _without_a_file(error) from error
    except Mistake as mistake:
        if is_help(mistake):
            sys.exit(UsageError.exit_code)
        raise usage_error(mistake) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    if code:
        sys.exit(code)


def _answered(arguments: list[str]) -> int | None:
    """The exit code of a command whose answer has left this process, however it ended."""
    try:
        code: int | None = _app_for(arguments)(arguments, prog_name="k31ctl", standalone_mode=False)
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # typer turns it into an exit
            raise stop.__context__ from None
        raise
    finally:
        sys.stdout.flush()
    return code


def _unwritable(why: str) -> InputError:
    return InputError(
        f"the answer cannot be written: {why}",
        where="standard output",
        remedy="send it to a terminal, a pipe or a file with room",
    )


def _without_a_file(error: OSError) -> InputError:
    """What an error means that names no file: of the answer, or of a temporary file."""
    if error.errno == ENOENT:  # as ``tempfile`` says where every folder is closed to it
        return InputError(
            "there is no folder for temporary files that can be written",
            where="TMPDIR, /tmp, /var/tmp and the working folder",
            remedy="let TMPDIR name a folder with room",
        )
    _drop_output()
    return _unwritable((error.strerror or "it failed").lower())


def _drop_output() -> None:
    """Let Python's own last flush go nowhere, or it would complain a second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _without_debug(given: list[str]) -> tuple[list[str], bool]:
    """Return the arguments without ``--debug``, and whether it was there, up to a bare ``--``."""
    end = given.index("--") if "--" in given else len(given)
    own = [argument for argument in given[:end] if argument != "--debug"]
    return own + given[end:], len(own) < end
