"""The program where its streams, its terminal or its life are not what it would like."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


def test_a_closed_output_is_told_in_three_lines(shell: Run) -> None:
    done = shell("k31ctl plan >&-")
    assert done.returncode == 3
    assert done.stderr.splitlines()[0] == "error: the answer cannot be written: it is closed"
    assert [line[:7] for line in done.stderr.splitlines()] == ["error: ", "   at: ", "   do: "]


@needs_full
@pytest.mark.parametrize(
    "arguments",
    ["plan", "plan --json", "plan --csv -", "--help", "--version", "plan --gate fits==false"],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told_in_three_lines(shell: Run, arguments: str, unbuffered: str) -> None:
    done = shell(f"k31ctl {arguments} >/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 3
    assert done.stderr.splitlines()[0] == (
        "error: the answer cannot be written: no space left on device"
    )
    assert len(done.stderr.splitlines()) == 3


def test_a_file_that_takes_only_a_part_is_a_full_disk(shell: Run, tmp_path: Path) -> None:
    line = f"ulimit -f 8; k31ctl plan --json >{tmp_path / 'plan.json'}"
    done = shell(line, PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        3,
        "error: the answer cannot be written: file too large",
    )


@needs_full
@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full", ">&- 2>&-"])
def test_a_failure_keeps_its_exit_code_where_nobody_can_read_it(shell: Run, redirect: str) -> None:
    done = shell(f"k31ctl plan kimi-k4 {redirect}")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_a_reader_who_left_is_no_failure_to_tell(shell: Run) -> None:
    done = shell("(sleep 0.1; k31ctl plan; echo $? >&2) | true")
    assert done.stderr == "141\n"


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"COLUMNS": "20"},
        {"COLUMNS": "1"},
    ],
    ids=str,
)
def test_any_locale_and_any_width_get_an_answer(shell: Run, environment: dict[str, str]) -> None:
    for arguments in ("plan --help", "plan --json", "profiles show deepseek-v3.2"):
        done = shell(f"k31ctl {arguments}", **environment)
        assert (done.returncode, done.stderr) == (0, "")
    assert shell("k31ctl plan kimi-ké", **environment).returncode == 3


def test_a_home_is_not_needed(shell: Run) -> None:
    done = shell("unset HOME; k31ctl plan && k31ctl profiles check")
    assert (done.returncode, done.stderr) == (0, "")


def test_json_is_the_same_in_every_locale_and_holds_any_name(shell: Run, tmp_path: Path) -> None:
    folder = tmp_path / "modèle"
    folder.mkdir()
    config = Path(__file__).parent.parent / "data" / "kimi-k3.config.json"
    (folder / "config.json").write_text(config.read_text())
    line = f"cd '{tmp_path}'; k31ctl plan ./modèle --json"
    usual, ascii_only = shell(line), shell(line, PYTHONIOENCODING="ascii")
    assert usual.stdout == ascii_only.stdout
    assert json.loads(usual.stdout)["inputs"]["model"] == "modèle"


def interrupted(tmp_path: Path, module: str, kill: int) -> subprocess.CompletedProcess[str]:
    """The program, which gets a signal when it imports a module."""
    (tmp_path / f"{module}.py").write_text(
        f"import os, time\nos.kill(os.getpid(), {kill})\ntime.sleep(30)\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "k31ctl", "plan"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )


@pytest.mark.parametrize("module", ["typer", "yaml"])
def test_an_interrupt_during_start_up_ends_quietly(tmp_path: Path, module: str) -> None:
    done = interrupted(tmp_path, module, signal.SIGINT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_termination_ends_quietly(tmp_path: Path) -> None:
    done = interrupted(tmp_path, "typer", signal.SIGTERM)
    assert done.returncode in (143, -signal.SIGTERM)
    assert (done.stdout, done.stderr) == ("", "")
