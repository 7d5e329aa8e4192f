"""The program as a process of its own: real arguments, streams, folder, environment and exit.

Most of what a short command costs is Python's start and the program's imports, the same each time.
One process does both, the origin, and each run is a fork of it. What is about the start itself, is
killed on the way or lasts goes through ``subprocess``.
"""

import atexit
import gc
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from k31ctl.__main__ import start

Done = subprocess.CompletedProcess[str]

_ROOT: Final = Path(__file__).parents[1]
_LIMIT_S: Final = 120
_ROOMS: Final = ("cli", "api", "report")
# What Python reads as it starts, so that a fork of the origin would not follow it.
_STARTS: Final = ("PYTHON", "LC_", "LANG")


def program(
    *arguments: str, environment: Mapping[str, str] | None = None, loaded: tuple[str, ...] = ()
) -> Done:
    """What the program answers to these arguments, in the folder of the test.

    ``loaded`` are the modules that are slow to import and that it would import by itself.
    """
    given = dict(os.environ if environment is None else environment)
    if _starts_as_the_origin(given):
        return _origin(loaded).run(arguments, given)
    return subprocess.run(
        [sys.executable, "-m", "k31ctl", *arguments],
        capture_output=True, text=True, check=False, timeout=_LIMIT_S, env=given,
    )  # fmt: skip


def _starts_as_the_origin(environment: Mapping[str, str]) -> bool:
    """The path is left out: it leads to this program wherever a test sets it."""
    return all(
        os.environ.get(name) == value
        for name, value in environment.items()
        if name.startswith(_STARTS) and name != "PYTHONPATH"
    )


@cache
def _origin(loaded: tuple[str, ...]) -> "_Origin":
    made = _Origin(loaded)
    atexit.register(made.end)
    return made


class _Origin:
    """A process that has imported the program, and waits to be told what to run."""

    def __init__(self, loaded: tuple[str, ...]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.program", *loaded],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT,
        )  # fmt: skip

    def run(self, arguments: tuple[str, ...], environment: dict[str, str]) -> Done:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        streams = [Path(self._folder.name, name) for name in ("stdout", "stderr")]
        for stream in streams:
            stream.unlink(missing_ok=True)
            stream.touch()
        asked = [arguments, environment, str(Path.cwd()), [str(stream) for stream in streams]]
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        return Done(["k31ctl", *arguments], code, *(stream.read_text() for stream in streams))

    def end(self) -> None:
        self._process.communicate()
        self._folder.cleanup()


def _main() -> NoReturn:
    for room in _ROOMS:
        for module in pkgutil.iter_modules([str(_ROOT / "k31ctl" / room)]):
            import_module(f"k31ctl.{room}.{module.name}")
    for name in sys.argv[1:]:
        import_module(name)
    gc.freeze()  # what is looked at by none is copied for none
    _become(*_asked())
    code = 1
    try:
        start()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:  # noqa: BLE001  shown, as Python itself shows it
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # Python would take every module apart, for which each is copied


def _asked() -> tuple[list[str], dict[str, str], str, list[str]]:
    """Return in a fork, with what it was asked to be."""
    for line in iter(sys.stdin.readline, ""):
        if not (child := os.fork()):
            found: tuple[list[str], dict[str, str], str, list[str]] = json.loads(line)
            return found
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()
    sys.exit()


def _become(
    arguments: list[str], environment: dict[str, str], folder: str, streams: list[str]
) -> None:
    for descriptor, path in enumerate((os.devnull, *streams)):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["k31ctl", *arguments]
    signal.alarm(_LIMIT_S)


if __name__ == "__main__":
    _main()
