"""Kernels, interpreted on a CPU, against the plain functions that they must equal."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from k31ctl.engine.checkpoint import load_model
from k31ctl.engine.kernels import choice
from k31ctl.engine.tensors import Kernels, Target
from k31ctl.errors import InputError
from tests.engine.conftest import Tiny
from tests.engine.runs import CPU, F32

HERE = Path(__file__).parent
CHECKS = sorted(HERE.glob("kernels/check_*.py"))
WHOLE = HERE / "kernels" / "whole_model.py"


# One process for all: to import torch and Triton takes longer than most checks.
RUN_EACH = """
import contextlib, io, json, runpy, sys, traceback
said = []
for command in json.loads(sys.argv[1]):
    sys.argv, code = command, 0
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            runpy.run_path(command[0], run_name="__main__")
        except BaseException:
            code = 1
            traceback.print_exc(file=printed)
    said.append((code, printed.getvalue()))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def interpreted(tiny: Tiny) -> dict[str, tuple[int, str]]:
    """What each file says, and its exit code, with Triton's interpreter."""
    if find_spec("triton") is None:
        pytest.skip("triton is not installed")
    commands = [[str(file)] for file in CHECKS] + [[str(WHOLE), str(tiny("kimi-k3.1-pro"))]]
    done = subprocess.run(
        [sys.executable, "-c", RUN_EACH, json.dumps(commands)],
        # The interpreter is chosen when Triton is imported.
        env=_environment() | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    return {Path(file).stem: each for (file, *_), each in zip(commands, said, strict=True)}


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), *sys.path])}


@pytest.mark.parametrize("name", [file.stem for file in CHECKS])
def test_a_kernel_is_its_plain_function(interpreted: dict[str, tuple[int, str]], name: str) -> None:
    code, said = interpreted[name]
    assert code == 0, said
    assert "as plain" in said


def test_a_whole_model_with_kernels_is_the_plain_model(
    interpreted: dict[str, tuple[int, str]],
) -> None:
    code, said = interpreted[WHOLE.stem]
    assert code == 0, said
    assert "as plain" in said
    assert "Triton, interpreted on a CPU" in said


def test_the_choice_says_why() -> None:
    plain = replace(F32, kernels=Kernels.PLAIN)
    assert choice(plain).because == "plain torch, as asked"
    assert not choice(F32).uses_triton
    because = choice(F32).because
    assert because.startswith("plain torch, because ")
    assert ("need a GPU" in because) == (find_spec("triton") is not None)


def test_triton_asked_for_in_vain_is_refused(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    target = Target(dtype=torch.float32, device=CPU, kernels=Kernels.TRITON)
    with pytest.raises(InputError, match="Triton kernels cannot run"):
        load_model(tiny("kimi-k3"), target)


@pytest.mark.gpu
@pytest.mark.parametrize("file", CHECKS, ids=[file.stem for file in CHECKS])
def test_a_kernel_is_its_plain_function_on_a_gpu(file: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    command = [sys.executable, str(file), "cuda"]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    assert "as plain" in done.stdout, done.stderr
