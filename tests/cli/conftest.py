"""The program as users run it: a process with arguments, two streams and an exit code."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.program import program

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def k31ctl() -> Run:
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return program(
            *arguments, environment={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", **environment}
        )

    return run


@pytest.fixture(scope="session")
def shell() -> Run:
    """A command line of ``sh`` in which ``k31ctl`` is this program; ``environment`` is added."""

    def run(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", f'k31ctl() {{ "{sys.executable}" -m k31ctl "$@"; }}\n{line}'],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", **environment},
        )

    return run
