"""Folders and files that the user may not read."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DROPPED = "--bounding-set=-dac_override,-dac_read_search"


def as_a_user_without_privileges(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The program as anyone but root runs it: root itself, without the right to pass modes."""
    own = [sys.executable, "-m", "k31ctl", *arguments]
    setpriv = ["setpriv", DROPPED, "--"] if os.geteuid() == 0 else []
    return subprocess.run([*setpriv, *own], capture_output=True, text=True, check=False, timeout=60)


pytestmark = pytest.mark.skipif(
    os.geteuid() == 0
    and (
        shutil.which("setpriv") is None
        or subprocess.run(["setpriv", DROPPED, "--", "true"], check=False).returncode != 0
    ),
    reason="root reads everything, and setpriv cannot take that away here",
)


@pytest.mark.parametrize("mode", [0o000, 0o444, 0o111])
@pytest.mark.parametrize("arguments", ["inspect {}", "plan {}", "plan {}/config.json"])
def test_a_folder_that_may_not_be_read_is_one_clear_error(
    tmp_path: Path, mode: int, arguments: str
) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    for name in ("model.safetensors", "model.safetensors.index.json", "config.json"):
        (folder / name).write_bytes(b"")
        (folder / name).chmod(0)
    folder.chmod(mode)
    done = as_a_user_without_privileges(*arguments.format(folder).split())
    folder.chmod(0o755)
    assert (done.returncode, done.stdout) == (3, "")
    assert [line[:7] for line in done.stderr.splitlines()] == ["error: ", "   at: ", "   do: "]
    assert str(folder) in done.stderr
    assert "permission denied" in done.stderr.lower()


def test_a_folder_of_profiles_that_may_not_be_read_is_a_mistake(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    done = as_a_user_without_privileges("plan", "--profiles", str(tmp_path))
    tmp_path.chmod(0o755)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not readable" in done.stderr
