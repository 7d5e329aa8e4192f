"""Processes that read values, a fresh one for each file, and as many at once as are wanted."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from k31ctl.errors import InputError


def read_by_processes(
    folder: Path, files: Sequence[str], *, num_jobs: int
) -> Iterator[tuple[str, Any]]:
    """Yield what a process of its own tells of each file, as they end; leaving ends them all.

    Threads alone would take turns: translating bytes holds Python's lock. ``multiprocessing`` would
    run the caller's own script again in every process.
    """
    readers: list[subprocess.Popen[bytes]] = []

    def read(file: str) -> Any:
        reader = _started(folder, file)
        readers.append(reader)
        return _answer_of(reader, folder / file)

    with ThreadPoolExecutor(min(num_jobs, len(files))) as pool:
        running = {pool.submit(read, file): file for file in files}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for reader in readers:
                reader.kill()


def _started(folder: Path, file: str) -> subprocess.Popen[bytes]:
    """A process that finds packages where this one does, and nothing in the working folder."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "k31ctl.fetch.value_reader", str(folder), file],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _answer_of(reader: subprocess.Popen[bytes], path: Path) -> Any:
    answer, errors = reader.communicate()
    if reader.returncode:
        said = errors.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise InputError(
            "its values could not be read: "
            + (said[0][:200] if said else f"the process ended with {reader.returncode}"),
            where=str(path),
            remedy="see that the file is readable and that memory is free, or try --jobs 1",
        )
    return json.loads(answer)
