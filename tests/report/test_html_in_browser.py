"""The page of a plan in a real browser: it draws, stays quiet, obeys its sliders, and prints."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k31ctl.report.html import plan_page
from tests.report import plan_documents as documents
from tests.report.browser import Page, browser, executable
from tests.report.test_html import spoilt

pytestmark = pytest.mark.skipif(executable() is None, reason="no Chromium or Chrome on PATH")

COMMAND = "k31ctl plan kimi-k3 --on 8x-b300 --html plan.html"
CHARTS = "[...document.querySelectorAll('[data-chart]')]"
DRAWN = f"{CHARTS}.filter(box => box.querySelector(':scope > svg')).map(box => box.dataset.chart)"
ALL = ["memory", "heatmap", "ttft", "tpot", "output", "user", "breakdown", "utilisation",
       "cost-by-load", "pareto", "start"]  # fmt: skip
# Where pictures go for a person to look at; nothing is kept where it is not set.
PICTURES = os.environ.get("K31CTL_TEST_PICTURES")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def written(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "plan.html"
    path.write_text(plan_page(document, command=COMMAND), encoding="utf-8")
    return path


def keep(name: str, content: bytes) -> None:
    if PICTURES:
        Path(PICTURES).mkdir(exist_ok=True)
        (Path(PICTURES) / name).write_bytes(content)


@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_charts_are_drawn_without_a_complaint_or_a_request(
    tab: Page, tmp_path: Path, width: int, scheme: str
) -> None:
    path = written(tmp_path, documents.full())
    tab.open(path, width=width, scheme=scheme)
    assert tab.run(DRAWN) == ALL
    assert tab.errors == []
    assert tab.requests == [path.as_uri()]
    assert tab.run("document.documentElement.scrollWidth") <= width
    keep(f"{scheme}-{width}.png", tab.picture())


def test_a_real_plan_is_drawn_whole(tab: Page, tmp_path: Path) -> None:
    tab.open(written(tmp_path, documents.real()))
    assert tab.run(f"{DRAWN}.length") == tab.run(f"{CHARTS}.length") >= 8
    assert tab.errors == []


def test_a_plan_of_memory_alone_draws_its_memory_and_its_map(tab: Page, tmp_path: Path) -> None:
    tab.open(written(tmp_path, documents.swept()))
    assert tab.run(DRAWN) == ["memory", "heatmap"]
    assert tab.errors == []


@pytest.mark.parametrize("key", ["performance", "curve", "heatmap", "cost", "candidates"])
def test_a_document_that_lacks_a_part_draws_the_others(tab: Page, tmp_path: Path, key: str) -> None:
    document = documents.full()
    del document["result"][key]
    tab.open(written(tmp_path, document))
    assert tab.errors == []
    assert tab.run(f"{DRAWN}.length") == tab.run(f"{CHARTS}.length") >= 6


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("curve", [{"concurrency": 8, "ttft_s": 1.0, "tpot_s": 0.02, "output_tok_s": 400.0}]),
        ("curve", [{"concurrency": None, "ttft_s": 1.0}]),
        ("curve", [{"concurrency": n, "ttft_s": 10.0**n, "fits": False} for n in range(1, 30)]),
        ("heatmap", [{"context_tokens": 8192, "batch": 4, "fits": False, "max_requests": 0}]),
        (
            "heatmap",
            [{"context_tokens": 1024 * n, "batch": 1, "fits": True, "max_requests": 2,
              "tpot_s": 0.02} for n in range(1, 40)],
        ),
        ("candidates", [{"hardware": "8x-b300"}]),
        ("candidates", [{"hardware": "8x-b300", "tok_s_per_user": 1, "total_tok_s_per_gpu": 2}]),
        ("cold_start", {"total_s": 1.0, "parts": []}),
    ],
)  # fmt: skip
def test_a_thin_or_crowded_part_draws_without_a_complaint(
    tab: Page, tmp_path: Path, key: str, value: object
) -> None:
    document = documents.full()
    document["result"][key] = value
    tab.open(written(tmp_path, document), width=400)
    assert tab.errors == []
    assert tab.run("document.documentElement.scrollWidth") <= 400


def test_hostile_texts_run_nothing(tab: Page, tmp_path: Path) -> None:
    document = documents.full()
    document |= {"result": spoilt(document["result"]), "inputs": spoilt(document["inputs"])}
    tab.open(written(tmp_path, document))
    assert tab.run("document.images.length") == 0
    assert tab.errors == []


def test_every_picture_has_a_role_and_a_name(tab: Page, tmp_path: Path) -> None:
    tab.open(written(tmp_path, documents.full()))
    pictures = "[...document.querySelectorAll('.chart > svg')]"
    named = f"{pictures}.every(p => p.getAttribute('role') === 'img' && p.ariaLabel.length > 20)"
    assert tab.run(named) is True
    assert tab.run("document.querySelectorAll('.chart > svg g[aria-label]').length") == 0
    assert tab.run(f"{pictures}.some(p => p.ariaLabel.endsWith('decode: 18.7 ms'))") is True


def test_sliders_start_at_the_plan_and_obey_the_keyboard(tab: Page, tmp_path: Path) -> None:
    tab.open(written(tmp_path, documents.full()))
    shown = "['out-cost', 'out-hour', 'out-even'].map(n => document.getElementById(n).textContent)"
    assert tab.run(shown) == ["$6.93", "$55.92", "612 million"]
    tab.run("document.getElementById('utilisation').focus()")
    tab.press("ArrowRight")
    # 6.93 x 60 / 61; the price of an hour and the break-even do not depend on the busy share
    assert tab.run(shown) == ["$6.82", "$55.92", "612 million"]
    tab.run("document.getElementById('price').focus()")
    for _ in range(10):
        tab.press("ArrowRight")
    # 6.99 + 10 x 0.01 = 7.09: 6.8164 x 7.09 / 6.99, 7.09 x 8 and 612 x 7.09 / 6.99
    assert tab.run(shown) == ["$6.91", "$56.72", "621 million"]
    assert tab.run("document.getElementById('price-shown').textContent") == "$7.09"


def test_numbers_behind_charts_fold_on_a_screen_and_open_on_paper(
    tab: Page, tmp_path: Path
) -> None:
    tab.open(written(tmp_path, documents.full()), scheme="dark")
    opened = "[...document.querySelectorAll('main details')].filter(d => d.open).length"
    assert tab.run(opened) == 0
    tab.run("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.run(opened) == tab.run("document.querySelectorAll('main details').length")
    tab.run("window.dispatchEvent(new Event('afterprint'))")
    assert tab.run(opened) == 0


def test_paper_is_white_in_a_dark_theme_and_holds_all_parts(tab: Page, tmp_path: Path) -> None:
    tab.open(written(tmp_path, documents.full()), scheme="dark")
    paper = tab.paper()
    assert paper.startswith(b"%PDF-")
    keep("paper.pdf", paper)
    tab.call("Emulation.setEmulatedMedia", media="print")
    assert tab.run("getComputedStyle(document.body).color") == "rgb(23, 33, 44)"
    tab.call("Emulation.setEmulatedMedia", media="")


def test_without_javascript_the_numbers_are_open_and_the_sliders_hidden(
    tab: Page, tmp_path: Path
) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    tab.open(written(tmp_path, documents.full()))
    assert tab.run("document.querySelectorAll('main details:not([open])').length") == 0
    assert tab.run("document.querySelector('.sliders').checkVisibility()") is False
    assert tab.run("document.querySelectorAll('.wait').length") == len(ALL)
    keep("no-script.png", tab.picture())
    tab.call("Emulation.setScriptExecutionDisabled", value=False)
