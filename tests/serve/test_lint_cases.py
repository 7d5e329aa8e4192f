"""Launch files of every kind with what must be found in them; an empty list means a clean one."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from k31ctl.catalog.hardware import load_node
from k31ctl.core.rules import Finding, Severity
from k31ctl.serve.lint import Asked
from k31ctl.serve.lint_files import lint_files
from tests.core.catalogs import STORE

CASES = Path(__file__).parent / "lint_cases"
EXPECTED = yaml.safe_load((CASES / "expected.yaml").read_text())


def findings(case: dict[str, Any]) -> list[Finding]:
    asked = Asked(
        engine=case["engine"],
        hardware=case["on"],
        node=load_node(STORE, case["on"]),
        nodes=case["nodes"],
    )
    (found,) = lint_files(STORE, [str(CASES / case["file"])], asked)
    return [each for each in found.findings if each.severity is not Severity.INFO]


@pytest.mark.parametrize("case", EXPECTED, ids=lambda case: case["file"])
def test_what_is_wrong_is_found_and_nothing_else_is_in_clean_files(case: dict[str, Any]) -> None:
    found = findings(case)
    assert bool(found) == bool(case["expect"]), found
    for expected in case["expect"]:
        assert any(
            each.severity == expected["severity"]
            and re.search(expected["mentions"], f"{each.message} {each.remedy}")
            for each in found
        ), (expected, found)


def test_every_file_has_its_expectation() -> None:
    files = {path.name for path in CASES.iterdir()} - {"expected.yaml"}
    assert files == {case["file"] for case in EXPECTED}
    assert len(files) >= 40


@pytest.mark.parametrize("case", EXPECTED, ids=lambda case: case["file"])
def test_fixing_a_file_comes_to_an_end_and_makes_nothing_worse(
    case: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / case["file"]
    path.write_text((CASES / case["file"]).read_text())
    errors = [Severity.ERROR] * 1000
    for _ in range(4):
        asked = Asked(engine=case["engine"], node=load_node(STORE, case["on"]), nodes=case["nodes"])
        (file,) = lint_files(STORE, [str(path)], asked)
        assert file.count(Severity.ERROR) <= len(errors)
        errors = errors[: file.count(Severity.ERROR)]
        assert file.fixed is not None
        if file.fixed.text == path.read_text():
            return
        path.write_text(file.fixed.text)
    pytest.fail("the changes do not come to an end")
