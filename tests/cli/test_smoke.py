"""The smoke test as users and CI systems see it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft202012Validator

from tests.cli.test_schemas import schema
from tests.cli.test_serve_embedded import HIDE_TORCH

pytest.importorskip("torch", reason="the extra engine is not installed")

Run = Callable[..., subprocess.CompletedProcess[str]]


def smoke(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "k31ctl", "smoke", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80", "CUDA_VISIBLE_DEVICES": ""},
    )


def test_without_a_folder_every_step_runs_on_a_tiny_checkpoint() -> None:
    done = smoke("--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    document = json.loads(done.stdout)
    Draft202012Validator(schema("smoke")).validate(document)
    result = document["result"]
    assert result["green"]
    assert [step["id"] for step in result["steps"] if step["status"] == "pass"] == [
        "identity",
        "files",
        "device",
        "expert",
        "blocks",
        "layers",
        "all",
        "service",
        "repeat",
    ]
    assert document["inputs"]["folder"] is None


def test_a_red_step_is_exit_code_4_in_text_document_and_junit(k31ctl: Run, tmp_path: Path) -> None:
    folder, junit = tmp_path / "tiny", tmp_path / "junit.xml"
    k31ctl("tiny", str(folder))
    (folder / "tokenizer_config.json").write_text("{}")
    done = smoke(str(folder), "--skip", "device", "--junit", str(junit))
    assert done.returncode == 4
    assert "files     red" in done.stdout
    assert "1 step green, 1 step red, 6 steps skipped" in done.stdout
    assert done.stderr.startswith("error: files failed: tokenizer_config.json")
    assert "--keep-going" in done.stderr
    (suite,) = ET.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("8", "1", "6")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["files"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nowhere",), 3, "there is no such folder"),
        (("--only", "layer"), 2, "did you mean layers?"),
        (("--layers", "5-6"), 3, "numbered from 0"),
        (("--on", "8x-b3000"), 3, "8x-b3000"),
        (("--truth", "nowhere"), 3, "there is no such file"),
        (("--device", "tpu"), 2, "is no device"),
        (("--model", "kimi"), 2, "is no model to make small"),
        (("--only", "files", "--skip", "files"), 2, "leave no step"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    k31ctl: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = k31ctl("smoke", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_without_torch_it_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDE_TORCH, "smoke"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "do: pip install 'k31ctl[engine]'" in done.stderr
