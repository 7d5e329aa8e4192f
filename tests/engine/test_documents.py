"""The Python that docs/engine.md shows, run as it stands."""

import re
from pathlib import Path

import pytest

from tests.engine.conftest import Tiny

PAGE = Path(__file__).parents[2] / "docs" / "engine.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_page_runs(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: str
) -> None:
    (tmp_path / "tiny-k31").symlink_to(tiny("kimi-k3.1-pro"))
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(PAGE), "exec"), {})


def test_the_page_has_code() -> None:
    assert len(BLOCKS) == 4
