"""``k31ctl serve --exec`` with a child that prints the log of an engine and answers as one."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.program import program

PREDICTED = 3_177_687  # kimi-k3, vLLM, 8x-b300: k31ctl serve --json, predicted.kv_cache_tokens
ENGINE = """#!{python}
import http.server, json, os, sys, threading
words = sys.argv[1:]
port = int(words[words.index("--port") + 1])
answered = threading.Event()
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({{"data": [{{"id": "{model}"}}]}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
        answered.set()
    def log_message(self, *words):
        pass
server = http.server.HTTPServer(("127.0.0.1", port), Answer)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("pid", os.getpid(), flush=True)
for line in {lines!r}:
    print(line, flush=True)
if {lines!r}[-1].endswith("startup complete."):
    answered.wait(30)
if {wait}:
    threading.Event().wait(120)
os._exit({status})
"""
READY = "INFO:     Application startup complete."


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        number = found.getsockname()[1]
    yield number


def started(
    folder: Path,
    port: int,
    *lines: str,
    model: str = "moonshotai/Kimi-K3",
    wait: bool = False,
    status: int = 0,
) -> "subprocess.Popen[str]":
    """The program with an engine in its path that prints these lines."""
    engine = folder / "vllm"
    engine.write_text(
        ENGINE.format(python=sys.executable, model=model, lines=lines, wait=wait, status=status)
    )
    engine.chmod(0o755)
    command = [sys.executable, "-m", "k31ctl", "serve", "kimi-k3", "--exec", "--port", str(port)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
    )


def test_a_server_that_becomes_ready_is_read_back_and_ends_with_an_interrupt(
    tmp_path: Path, port: int
) -> None:
    capacity = f"INFO GPU KV cache size: {PREDICTED:,} tokens"
    program = started(tmp_path, port, capacity, READY, wait=True)
    assert program.stdout is not None
    assert program.stderr is not None
    line = program.stdout.readline()
    while not line.startswith("pid "):  # the shell may have said that limits stay as they are
        line = program.stdout.readline()
    pid = int(line.split()[1])
    assert program.stdout.readline() == f"{capacity}\n"
    assert program.stdout.readline() == f"{READY}\n"
    said = program.stderr.readline()
    while not said.startswith("k31ctl"):
        said = program.stderr.readline()
    assert said == "k31ctl: ready, and serves moonshotai/Kimi-K3\n"
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert (program.returncode, errors) == (130, "")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_terminal_that_hangs_up_takes_the_server_with_it(tmp_path: Path, port: int) -> None:
    program = started(tmp_path, port, READY, wait=True)
    assert program.stdout is not None
    line = program.stdout.readline()
    while not line.startswith("pid "):
        line = program.stdout.readline()
    program.send_signal(signal.SIGHUP)
    program.communicate(timeout=60)
    assert program.returncode == 129
    with pytest.raises(ProcessLookupError):
        os.kill(int(line.split()[1]), 0)


@pytest.mark.parametrize(
    ("line", "rule", "remedy"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory.", "log-out-of-memory", "memory fraction"),
        ("ValueError: No available memory for the cache blocks.", "log-no-cache", "more nodes"),
        ("vllm: error: unrecognized arguments: --x", "log-flag", "k31ctl lint"),
        ("RuntimeError: NCCL error: unhandled system error", "log-shared-memory", "host IPC"),
        ("OSError: [Errno 24] Too many open files", "log-open-files", "ulimit -n 65536"),
    ],
)
def test_a_known_failure_is_told_with_its_rule_and_remedy(
    tmp_path: Path, port: int, line: str, rule: str, remedy: str
) -> None:
    program = started(tmp_path, port, line, status=1)
    output, errors = program.communicate(timeout=60)
    assert program.returncode == 4
    assert line in output
    assert f"(rule {rule}," in errors
    assert remedy in errors.splitlines()[-1]
    assert "Traceback" not in errors


def test_an_unknown_failure_is_a_failure_too(tmp_path: Path, port: int) -> None:
    program = started(tmp_path, port, "Segmentation fault", status=11)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 4
    assert "the server ended with status 11" in errors


def test_a_smaller_cache_than_predicted_is_a_finding(tmp_path: Path, port: int) -> None:
    program = started(tmp_path, port, "INFO GPU KV cache size: 2,000,000 tokens", READY)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 0
    assert f"the cache holds 2,000,000 tokens, {PREDICTED:,} were predicted" in errors
    assert "readback-capacity" in errors


def test_a_server_of_another_model_breaks_the_contract(tmp_path: Path, port: int) -> None:
    program = started(tmp_path, port, READY, model="another", wait=True)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 6
    assert "the server is ready and serves another" in errors


def test_an_engine_that_is_not_there_is_told(port: int) -> None:
    command = [sys.executable, "-m", "k31ctl", "serve", "kimi-k3", "--exec", "--port", str(port)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 4
    assert "the server ended with status 127" in done.stderr


@pytest.mark.parametrize("words", [("--as", "compose"), ("--nodes", "2"), ("--json",)])
def test_only_a_script_for_one_node_is_started(words: tuple[str, ...]) -> None:
    done = program("serve", "kimi-k3", "--exec", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "only a script for one node can be started here" in done.stderr
