"""Which release a file is checked for, where the file itself says it."""

from pathlib import Path

import pytest

from k31ctl.catalog.hardware import load_node
from k31ctl.errors import UsageError
from k31ctl.serve.lint import Asked
from k31ctl.serve.lint_files import lint_files
from tests.core.catalogs import STORE

SERVE = "vllm serve moonshotai/Kimi-K3.1-Pro --trust-remote-code -tp 8\n"
COMPOSE = """services:
  kimi:
    image: {}
    ipc: host
    gpus: all
    command: [moonshotai/Kimi-K3.1-Pro, --trust-remote-code, -tp, "8"]
"""


def rules(folder: Path, text: str, *, name: str) -> set[str]:
    """The rules of all that is found in a file with this text."""
    path = folder / name
    path.write_text(text)
    (found,) = lint_files(STORE, [str(path)], Asked(node=load_node(STORE, "8x-b300")))
    return {each.id for each in found.findings}


@pytest.mark.parametrize(
    ("tag", "refused"), [("nightly", False), ("main", False), ("v0.33.0", True)]
)
def test_a_branch_is_no_release(tag: str, refused: bool, tmp_path: Path) -> None:
    found = rules(tmp_path, COMPOSE.format(f"vllm/vllm-openai:{tag}"), name="compose.yaml")
    assert ("model-k31-unsupported" in found) == refused


@pytest.mark.parametrize(("version", "refused"), [("main", False), ("0.33.0", True)])
def test_the_title_of_a_written_file_names_the_release(
    version: str, refused: bool, tmp_path: Path
) -> None:
    title = f"#!/bin/bash\n# Kimi K3.1 Pro with vllm {version} on 8x-b300 (TP8)\n"
    found = rules(tmp_path, title + SERVE, name="launch.sh")
    assert ("model-k31-unsupported" in found) == refused


def test_files_in_front_of_a_command_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be checked together"):
        lint_files(STORE, ["a.sh", "b.sh", *SERVE.split()], Asked())


@pytest.mark.parametrize("before", [[], ["env", "A=1"], ["srun", "-N2"], ["bash", "wrap.sh"]])
def test_a_command_behind_another_is_checked(before: list[str]) -> None:
    (found,) = lint_files(STORE, [*before, *SERVE.split()], Asked())
    assert "model-k31-unsupported" in {each.id for each in found.findings}
