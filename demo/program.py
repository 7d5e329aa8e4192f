"""The program as a reader would run it: every command is shown, and its answer kept as JSON."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

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
    """Runs ``k31ctl`` in a folder; what ``until`` holds ends with the loop."""

    folder: Path
    until: ExitStack
    say: Callable[[str], object]
    url: str = ""
    results: dict[str, Any] = field(default_factory=dict)

    def ask(self, *arguments: str, into: str) -> Any:
        """Return the result of a command, whose document stays in the folder under that name."""
        self.show(*arguments, "--json", into=into)
        with (self.folder / into).open("wb") as answer:
            done = subprocess.run(
                [*PROGRAM, *arguments, "--json"],
                cwd=self.folder,
                env=environment(),
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
        """Start a server that ends with the loop; returns its lines up to its address."""
        self.show(*arguments, into="serve.log", background=True)
        log = self.folder / "serve.log"
        with log.open("wb") as out:
            process = self._started(arguments, stdout=out, stderr=subprocess.STDOUT)
        self.until.callback(_ended, process)
        while process.poll() is None:
            lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
            if lines and lines[-1].startswith("ready: ") and lines[-1].endswith("\n"):
                self.url = lines[-1].split()[3].removesuffix("/v1")
                return [line.strip() for line in lines]
            time.sleep(0.05)
        said = log.read_text(encoding="utf-8")
        raise StepError(shlex.join(("k31ctl", *arguments)), process.returncode or 1, said)

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
            env=environment(),
            stdout=stdout,
            stderr=stderr,
            text=True,
        )


def width() -> int:
    """Return how many columns are written: those of the terminal, up to 120."""
    return min(shutil.get_terminal_size().columns, 120)


def environment() -> dict[str, str]:
    """Return what commands run with: this checkout, and no proxy or hub token for loopback."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    loopback = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return kept | loopback | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def _ended(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(timeout=_SERVER_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
