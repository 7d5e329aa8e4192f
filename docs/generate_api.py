"""Renew what docs/api.md shows as the output of its Python.

Run ``python docs/generate_api.py`` after a change of behaviour; ``tests/test_api.py`` calls the
same function and fails where the page differs from it. Blocks run in their order, in one namespace
and in an empty folder; a ``text`` block behind one holds what it prints.
"""

import re
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

PAGE: Final = Path(__file__).with_name("api.md")
_BLOCK: Final = re.compile(r"^```python\n(.*?)^```\n(\n```text\n.*?^```\n)?", re.M | re.S)


def renewed(text: str) -> str:
    """Return the page with what its blocks print now."""
    names: dict[str, Any] = {"__name__": "page"}

    def ran(block: re.Match[str]) -> str:
        output = StringIO()
        with redirect_stdout(output):
            exec(compile(block[1], str(PAGE), "exec"), names)
        said = output.getvalue()
        return f"```python\n{block[1]}```\n" + (f"\n```text\n{said}```\n" if said else "")

    with TemporaryDirectory() as folder, chdir(folder):
        return _BLOCK.sub(ran, text)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
