"""A folder of programs that print how they were called, in the place of the engines."""

import sys
from pathlib import Path

import pytest

PRINT = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([sys.argv, dict(os.environ)]))
"""
PROGRAMS = ("vllm", "python3", "ts", "vllm-router")


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name in PROGRAMS:
        (folder / name).write_text(PRINT)
        (folder / name).chmod(0o755)
    return folder
