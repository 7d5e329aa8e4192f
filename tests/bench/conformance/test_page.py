"""The page about conformance lists the checks as they are."""

import re
from pathlib import Path

from k31ctl.bench.conformance.registry import CHECKS

PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"


def test_the_page_has_every_check_with_its_severity_and_question() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (\w+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(check.id, check.severity.value, check.title) for check in CHECKS]


def test_the_page_names_the_checks_that_messages_lack() -> None:
    only_chat = [f"`{check.id}`" for check in CHECKS if check.apis == ("chat",)]
    assert f"{', '.join(only_chat[:-1])} and {only_chat[-1]} are of chat completions" in (
        PAGE.read_text()
    )
