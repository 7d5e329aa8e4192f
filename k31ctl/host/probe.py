"""Asking a machine: files below a root folder, and tools that may be missing, mad or asleep.

Nothing is ever written. A tool gets a session of its own, so that it and all its children can be
killed; one that cannot even be killed, because it waits for a dead device, is left behind.
"""

import os
import selectors
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from k31ctl.core.host import Why
from k31ctl.values import frozen

MOST_BYTES: Final = 4 * 2**20
_CHUNK_BYTES: Final = 2**16
_SHOWN: Final = 100
_GRACE_S: Final = 0.5


class Missed(Exception):  # noqa: N818  not a failure of ours: the machine does not say
    """Something that could not be read, and why."""

    def __init__(self, kind: Why, why: str) -> None:
        super().__init__(why)
        self.kind, self.why = kind, why


@frozen
class Probe:
    """A root folder, where to look for tools, this process's environment, and patience."""

    root: Path
    path: str
    environment: Mapping[str, str]
    timeout_s: float
    processes: "Processes"

    def at(self, path: str) -> Path:
        """A path of the machine below the root folder."""
        return self.root / path.lstrip("/")

    def text(self, path: str, *, most_bytes: int = MOST_BYTES) -> str:
        """Contents of a file, cut at ``most_bytes``; raises Missed."""
        try:
            with self.at(path).open("rb") as stream:
                return stream.read(most_bytes).decode("utf-8", errors="replace")
        except OSError as error:
            raise _unreadable(path, error) from None

    def line(self, path: str) -> str:
        """The first line of a small file, empty where it cannot be read."""
        try:
            return self.text(path, most_bytes=4096).partition("\n")[0].strip()
        except Missed:
            return ""

    def number(self, path: str) -> int | None:
        """A small file that holds a whole number; None where it does not."""
        return whole(self.line(path))

    def names(self, path: str) -> list[str]:
        """Names in a folder, sorted; none where it cannot be read."""
        try:
            return sorted(os.listdir(self.at(path)))  # noqa: PTH208  names, not paths
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return os.path.lexists(self.at(path))

    def has(self, tool: str) -> bool:
        """Whether a tool is installed."""
        return shutil.which(tool, path=self.path) is not None

    def run(self, *command: str) -> str:
        """What a tool prints; raises Missed where it is missing, fails, is slow or never ends."""
        program = shutil.which(command[0], path=self.path)
        if program is None:
            raise Missed(Why.ABSENT, f"{command[0]} is not installed")
        said = " ".join(command[:2])
        try:
            process = self.processes.start([program, *command[1:]], self.environment)
        except (OSError, ValueError) as error:
            raise Missed(Why.FAILED, f"{said} cannot be started: {error}") from None
        try:
            printed, complaint = _output(process, said, until=time.monotonic() + self.timeout_s)
        finally:
            code = self.processes.end(process)
        if code:
            first = (complaint.strip() or printed.strip()).partition("\n")[0][:_SHOWN]
            raise Missed(Why.FAILED, f"{said} ended with exit code {code}: {first or 'no word'}")
        return printed


class Processes:
    """The tools that run now, so that none outlives the question."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._num_starting = 0
        self._changed = threading.Condition()
        self._closed = False

    def start(
        self, command: list[str], environment: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        """Start a tool in a session of its own, with messages in English.

        Starting may itself hang, where the tool lies on a dead file system: nothing is locked then.
        """
        with self._changed:
            if self._closed:
                raise OSError("the time is over")
            self._num_starting += 1
        process = None
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment, "LC_ALL": "C"},
                start_new_session=True,
            )
        finally:
            with self._changed:
                self._num_starting -= 1
                if process is not None:
                    self._running.add(process)
                self._changed.notify_all()
        return process

    def end(self, process: "subprocess.Popen[bytes]") -> int:
        """End a tool and its children; its exit code, or -1 where it cannot be ended."""
        with self._changed:
            self._running.discard(process)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        try:
            return process.wait(timeout=_GRACE_S if process.poll() is None else 0)
        except subprocess.TimeoutExpired:
            pass
        _kill(process)
        try:
            return process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            process.returncode = -1  # asleep in the kernel: its end is nobody's to wait for
            return -1

    def end_all(self) -> None:
        """End whatever still runs, or is about to; nothing starts after this."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._num_starting, timeout=_GRACE_S)
            left = list(self._running)
        for process in left:
            _kill(process)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, 9)
    except (ProcessLookupError, PermissionError):
        return


def _output(process: "subprocess.Popen[bytes]", said: str, *, until: float) -> tuple[str, str]:
    """Both streams of a process, read until it ends, at most ``MOST_BYTES`` of each."""
    assert process.stdout is not None
    assert process.stderr is not None
    got: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    for stream, chunk in _chunks(process, list(got), said, until=until):
        got[stream] += chunk
        if len(got[stream]) > MOST_BYTES:
            _kill(process)
            raise Missed(Why.FAILED, f"{said} prints more than {MOST_BYTES >> 20} MiB")
    texts = [bytes(content).decode("utf-8", errors="replace") for content in got.values()]
    return texts[0], texts[1]


def _chunks(
    process: "subprocess.Popen[bytes]", streams: list[IO[bytes]], said: str, *, until: float
) -> Iterator[tuple[IO[bytes], bytes]]:
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ, stream)
        while selector.get_map():
            left = until - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                _kill(process)
                raise Missed(Why.SLOW, f"{said} did not answer in time")
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if chunk:
                    yield key.data, chunk
                else:
                    selector.unregister(key.fileobj)


def _unreadable(path: str, error: OSError) -> Missed:
    if isinstance(error, PermissionError):
        return Missed(Why.DENIED, f"{path} may not be read by this user")
    if isinstance(error, FileNotFoundError):
        return Missed(Why.ABSENT, f"{path} does not exist")
    return Missed(Why.FAILED, f"{path}: {(error.strerror or 'cannot be read').lower()}")


def whole(text: str) -> int | None:
    """A whole number at the start of a text, such as ``16x`` or ``-1``; None for others."""
    first = next(iter(text.split(maxsplit=1)), "").rstrip("x")
    digits = first.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):  # noqa: PLR2004
        return None
    return int(first)
