"""The service as a program: its address, its end, and what it needs to start."""

import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from k31ctl.engine.service.server import run_service
from k31ctl.errors import InputError
from tests.engine.scripted import ScriptedGenerator, small_model

PROGRAM = """
import sys
from pathlib import Path
from k31ctl.engine.service.server import run_service
from tests.engine.scripted import ScriptedGenerator, small_model
said = lambda url: print(url, flush=True)
generator = ScriptedGenerator(lambda _: ())
run_service(small_model(Path(sys.argv[1])), generator, port=0, when_ready=said)
"""


def test_it_says_where_it_is_and_ends_when_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        url = program.stdout.readline().decode().strip()
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{url}/health", timeout=60) as response:
            assert response.status == 200
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=60)
    assert program.returncode != 0
    assert b"KeyboardInterrupt" in errors.splitlines()[-1]


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError) as refused:
            run_service(small_model(tmp_path), ScriptedGenerator(lambda _: ()), port=port)
    assert refused.value.where == f"127.0.0.1:{port}"
