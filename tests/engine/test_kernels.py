"""Kernels, interpreted on a CPU, against the plain functions that they must equal."""

import os
import subprocess
import sys
from collections.abc import Callable
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


@pytest.fixture(scope="session")
def interpreted() -> Callable[..., str]:
    """Run a file with Triton's interpreter, which is chosen when Triton is imported."""
    if find_spec("triton") is None:
        pytest.skip("triton is not installed")

    def run(file: Path, *arguments: str) -> str:
        environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent.parent), *sys.path])
        command = [sys.executable, str(file), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("file", CHECKS, ids=[file.stem for file in CHECKS])
def test_a_kernel_is_its_plain_function(interpreted: Callable[..., str], file: Path) -> None:
    assert "as plain" in interpreted(file)


def test_a_whole_model_with_kernels_is_the_plain_model(
    interpreted: Callable[..., str], tiny: Tiny
) -> None:
    said = interpreted(HERE / "kernels" / "whole_model.py", str(tiny("kimi-k3.1-pro")))
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
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), *sys.path])}
    command = [sys.executable, str(file), "cuda"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "as plain" in done.stdout, done.stderr
