import importlib
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
GENERATOR: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "generate_cli.py"))
QUOTING: tuple[Path, ...] = tuple(
    page
    for page in GENERATOR["PAGES"]
    if "k31ctl " in page.read_text() and page.name not in ("cli.md", "index.md")
)
ALL = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", QUOTING, ids=named)
def test_what_a_page_quotes_is_what_the_program_says(page: Path) -> None:
    text = page.read_text()
    assert GENERATOR["renewed"](text) == text


def test_the_command_line_page_is_the_program_s_own_help() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == GENERATOR["cli_page"]()


def test_the_page_of_rules_is_what_the_rules_say() -> None:
    assert (ROOT / "docs" / "rules.md").read_text() == GENERATOR["rules_page"]()


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"(?m)^#+ (.+)$", page.read_text())
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", ALL, ids=named)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text())
    for path, anchor in links:
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", ALL, ids=named)
def test_functions_that_a_page_names_exist(page: Path) -> None:
    for module, name in re.findall(r"`((?:core|catalog)\.\w+)\.(\w+)`", page.read_text()):
        assert hasattr(importlib.import_module(f"k31ctl.{module}"), name), f"{module}.{name}"


def test_a_page_that_quotes_a_wrong_number_is_found_out() -> None:
    page = "| unit | planned | name | command |\n|-|-|-|-|\n| | 1 | `num_files` | `{}` |\n"
    command = "k31ctl profiles check"
    found = GENERATOR["renewed"](page.format(command))
    assert "| 1 |" not in found
    assert GENERATOR["renewed"](found) == found


def test_a_table_of_answers_that_quotes_a_wrong_number_is_found_out() -> None:
    head = "<!-- rows: k31ctl profiles | num_files -->\n\n| what | files |\n|-|-|\n"
    found = GENERATOR["renewed"](f"{head}| `check` | 1 |\n\n| `check` | 1 |\n|-|-|\n| a | 1 |\n")
    shown = found.removeprefix(head).split("\n")
    assert shown[0] != "| `check` | 1 |"
    assert shown[1:] == ["", "| `check` | 1 |", "|-|-|", "| a | 1 |", ""]
    assert GENERATOR["renewed"](found) == found


def test_a_failing_command_needs_its_exit_code_on_the_page() -> None:
    with pytest.raises(RuntimeError, match="exit 3"):
        GENERATOR["renewed"]("```console\n$ k31ctl profiles show nothing\n```\n")
    shown = GENERATOR["renewed"]("```console\n$ k31ctl profiles show nothing; echo $?\n```\n")
    assert shown.endswith("\n3\n```\n")
