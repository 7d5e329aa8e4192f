"""What pages take from the program's own data is what the data says, and none of it is left out."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATOR: dict[str, Any] = runpy.run_path(str(DOCS / "generate_reference.py"))
MARKER = re.compile(r"<!-- ([\w-]+): (.+?) -->")
OURS = re.compile(r'"((?:K31CTL|HF|HUGGING_FACE|SSL|REQUESTS|CURL|TRITON)_[A-Z_]+)"')


@pytest.mark.parametrize("page", GENERATOR["PAGES"], ids=lambda page: page.name)
def test_tables_of_a_page_are_what_the_data_says(page: Path) -> None:
    assert GENERATOR["filled"](page.read_text()) == page.read_text()


def test_the_page_of_documents_is_what_the_schemas_say() -> None:
    assert (DOCS / "schemas.md").read_text() == GENERATOR["schemas_page"]()


@pytest.mark.parametrize("kind", ["launch", "log", "machine", "contract"])
def test_whatever_a_check_can_find_has_a_symptom(kind: str) -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    told = {
        name for found, names in MARKER.findall(page) if found == kind
        for name in GENERATOR["named"](kind, names)
    }  # fmt: skip
    assert told == set(GENERATOR["TABLES"][kind][1]())


def test_a_table_of_what_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no launch 'nodes-unheard-of'"):
        GENERATOR["filled"]("<!-- launch: nodes-unheard-of -->\n<!-- end -->")


def test_a_pattern_of_a_log_line_is_told_as_text() -> None:
    assert GENERATOR["readable"](r"error: (unknown|bad) flag|No .*'?room\.") == [
        "error: unknown flag",
        "error: bad flag",
        "No ...'room.",
    ]


def test_every_variable_that_the_program_reads_is_on_the_page() -> None:
    page = (DOCS / "reference.md").read_text()
    read = {
        name
        for path in (ROOT / "k31ctl").rglob("*.py")
        if "rules" not in path.parts and "flag_script" not in path.name
        for name in OURS.findall(path.read_text())
    }
    assert {name for name in read if f"`{name}`" not in page} == set()
