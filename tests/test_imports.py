import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]


LEFT_OUT = ["torch", "huggingface_hub", "httpx", "pynvml", "psutil"]
LEFT_OUT += ["starlette", "uvicorn", "tiktoken", "PIL"]


@pytest.mark.parametrize("module", LEFT_OUT)
def test_starting_the_program_leaves_out(module: str) -> None:
    code = f"import sys, k31ctl.cli.main; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("contract", "exempt"),
    [
        ("Torch stays in the engine room", {"cli", "engine", "smoke"}),
        ("Only report prints and only cli parses arguments", {"cli", "report"}),
    ],
)
def test_every_room_is_under_contract(contract: str, exempt: set[str]) -> None:
    (found,) = [entry for entry in CONTRACTS if entry["name"] == contract]
    rooms = {path.parent.name for path in (ROOT / "k31ctl").glob("*/__init__.py")}
    assert {f"k31ctl.{room}" for room in rooms - exempt} <= set(found["source_modules"])


def test_the_files_that_the_architecture_names_exist_and_every_room_is_drawn() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    files = {path.name for path in (ROOT / "k31ctl").rglob("*.py")}
    named = re.findall(r"`([a-z_0-9]+\.py)`", text)
    assert len(named) > 150
    assert [name for name in named if name not in files] == []
    rooms = {path.parent.name for path in (ROOT / "k31ctl").glob("*/__init__.py")}
    assert {room for room in rooms if f"| `{room}` |" not in text} == set()
