"""The program as a server, in a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fetch.conftest import environment


class ServingProcess:
    """A running ``fetch --serve``; ``url`` is where it answers."""

    def __init__(self, folder: Path, *options: str, **more: str) -> None:
        self._process = subprocess.Popen(
            [
                *[sys.executable, "-m", "k31ctl", "fetch", "--serve", "--to", str(folder)],
                *["--host", "127.0.0.1", "--port", "0", *options],
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**more),
        )
        assert self._process.stdout is not None
        self.first_lines = [self._process.stdout.readline() for _ in range(2)]
        self.url = self.first_lines[1].split()[-1]

    def stop(self) -> tuple[int, str, str]:
        """Interrupt it; returns exit code and what it wrote."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        out, err = self._process.communicate(timeout=20)
        return self._process.returncode, out, err


@contextmanager
def serving(folder: Path, *options: str, **more: str) -> Iterator[ServingProcess]:
    """Serve a folder until the block ends."""
    process = ServingProcess(folder, *options, **more)
    try:
        yield process
    finally:
        process.stop()


def flip(path: Path, position: int) -> None:
    """Change one byte in place, and nothing that a size or a time would tell."""
    times = path.stat()
    with path.open("r+b") as stream:
        stream.seek(position)
        byte = stream.read(1)[0]
        stream.seek(position)
        stream.write(bytes([byte ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
