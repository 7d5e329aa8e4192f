"""The documentation as a site: all pages are in it, none asks the web, pictures are true."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SCREENSHOTS: dict[str, Any] = runpy.run_path(str(DOCS / "make_screenshots.py"))
PAGES = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
LARGEST_PICTURE_BYTES = 300_000


def test_every_page_is_in_the_navigation_and_linked_from_the_first() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    assert set(re.findall(r"(?m)^ +- (?:.+: )?(\S+\.md)$", settings)) == PAGES
    linked = set(re.findall(r"\]\(([\w/-]+\.md)[)#]", (DOCS / "index.md").read_text()))
    assert linked == PAGES - {"index.md"}


@pytest.mark.parametrize("name", SCREENSHOTS["SAME_EVERYWHERE"])
def test_a_picture_shows_what_the_program_says(name: str, tmp_path: Path) -> None:
    drawn = SCREENSHOTS["same_everywhere"](name, tmp_path)
    assert (DOCS / "images" / name).read_text() == drawn


def test_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (DOCS / "images").iterdir()}
    assert max(sizes.values()) < LARGEST_PICTURE_BYTES, sizes


def test_the_site_is_built_without_a_complaint_and_asks_the_web_for_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    loaded = (
        r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)"
    )
    for page in tmp_path.rglob("*.html"):
        assert re.findall(loaded, page.read_text()) == [], page.name
    for sheet in tmp_path.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//|@import", sheet.read_text()), sheet.name
    index = json.loads((tmp_path / "search" / "search_index.js").read_text().partition("= ")[2])
    found = {doc["location"] for doc in index["docs"] if "Retry-After" in doc["text"]}
    assert "applications.html#retries-and-time-outs" in found
