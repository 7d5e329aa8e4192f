"""The program as a reader would run it: every command is shown, and its answer kept as JSON."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

ROOT: Final = Path(__file__).parents[1]
PROGRAM: Final = (sys.executable, "-m", "k31ctl")
INDENT: Final = "    "
_SERVER_END_S: Final = 30


class StepError(Exception):
    """A command that did not end as the loop needs, with its exit code and its own words."""

    def __init__(self, command: str, code: int, said: str) -> None:
        super().__init__(f"exit code {code} from: {command}")
        self.command, self.code, self.said = command, code, said


@dataclass
class Program:
    """Runs ``k31ctl`` in a folder; a server that it starts is for ``no_children_left`` to end."""

    folder: Path
    say: Callable[[str], object]
    url: str = ""
    server: "subprocess.Popen[str] | None" = None
    results: dict[str, Any] = field(default_factory=dict)

    def ask(self, *arguments: str, into: str) -> Any:
        """Return the result of a command, whose document stays in the folder under that name."""
        self.show(*arguments, "--json", into=into)
        with (self.folder / into).open("wb") as answer:
            done = subprocess.run(
                [*PROGRAM, *arguments, "--json"],
                cwd=self.folder,
                env=environment(self.folder),
                stdout=answer,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        if done.returncode:
            raise StepError(shlex.join(("k31ctl", *arguments)), done.returncode, done.stderr)
        result = json.loads((self.folder / into).read_bytes())["result"]
        self.results[into] = result
        return result

    def kill_when(self, is_time: Callable[[], bool], *arguments: str) -> None:
        """Run a command and kill it, with the signal that nothing can catch, when it is time."""
        self.show(*arguments)
        process = self._started(arguments, stdout=subprocess.DEVNULL)
        try:
            while process.poll() is None and not is_time():
                time.sleep(0.01)
        finally:
            process.kill()
            said = process.communicate()[1]
        if process.returncode != -signal.SIGKILL:
            raise StepError(shlex.join(("k31ctl", *arguments)), process.returncode or 1, said)

    def serve(self, *arguments: str) -> list[str]:
        """Start a server in the background; returns its lines up to its address."""
        self.show(*arguments, into="serve.log", background=True)
        log = self.folder / "serve.log"
        with log.open("wb") as out:
            process = self._started(arguments, stdout=out, stderr=subprocess.STDOUT)
        self.server = process
        while process.poll() is None:
            lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
            if lines and lines[-1].startswith("ready: ") and lines[-1].endswith("\n"):
                self.url = lines[-1].split()[3].removesuffix("/v1")
                return [line.strip() for line in lines]
            time.sleep(0.05)
        said = log.read_text(encoding="utf-8")
        raise StepError(shlex.join(("k31ctl", *arguments)), process.returncode or 1, said)

    def close(self) -> None:
        """Wait for the server, which was told to end."""
        if self.server is not None:
            self.server.wait()

    def show(self, *arguments: str, into: str = "", background: bool = False) -> None:
        """Say a command as it can be copied, over as many lines as the terminal needs."""
        words = ["$ k31ctl"]
        for word in map(shlex.quote, arguments):
            if not word.startswith("-") and words[-1].startswith("-") and " " not in words[-1]:
                words[-1] += f" {word}"  # an option and its value stay together
            else:
                words.append(word)
        words += [f"> {into}"] if into else []
        words += ["&"] if background else []
        room = width() - len(INDENT) - len(" \\")
        lines = [words[0]]
        for word in words[1:]:
            if len(lines[-1]) + 1 + len(word) <= room:
                lines[-1] += f" {word}"
            else:
                lines.append(f"{INDENT}{word}")
        self.say(INDENT + f" \\\n{INDENT}".join(lines))

    def _started(
        self, arguments: tuple[str, ...], *, stdout: Any, stderr: int = subprocess.PIPE
    ) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*PROGRAM, *arguments],
            cwd=self.folder,
            env=environment(self.folder),
            stdout=stdout,
            stderr=stderr,
            text=True,
        )


def width() -> int:
    """Return how many columns are written: those of the terminal, up to 120."""
    return min(shutil.get_terminal_size().columns, 120)


def environment(folder: Path) -> dict[str, str]:
    """Return what commands run with: this checkout, no proxy, no hub token, no other folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    loopback = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    ours = {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "NO_COLOR": "1"}
    return kept | loopback | ours


@contextmanager
def no_children_left() -> Iterator[None]:
    """End what was started in the block, also where an interrupt came before it had a name."""
    before = set(psutil.Process().children())
    try:
        yield
    finally:
        children = [child for child in psutil.Process().children() if child not in before]
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.terminate()
        for child in psutil.wait_procs(children, timeout=_SERVER_END_S)[1]:
            child.kill()
