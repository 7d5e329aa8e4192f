"""The page of a plan: what it says without a script, what may run in it, what it never loads."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from hashlib import sha256
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.report import plan_document
from k31ctl.report.html import plan_page
from k31ctl.report.plan_text import as_text
from tests.core.deployments import planned
from tests.report import plan_documents as documents

COMMAND = "k31ctl plan kimi-k3 --on 8x-b300 --html plan.html"
HOSTILE = "</script><img src=x onerror=alert(1)>&\"'`\u202e\ud800<!--"
OPTIONAL = ("performance", "curve", "heatmap", "cost", "candidates", "pareto", "cold_start")
SECTIONS = ["conclusion", "memory", "capacity", "speed", "cost", "options", "start",
            "assumptions", "reproduce"]  # fmt: skip
VOID = {"br", "input", "meta"}
BARE = documents.bare()
ASSETS = resources.files("k31ctl.report") / "assets"
# sha256 of dist/d3.min.js in npm's d3 7.9.2 and of dist/plot.umd.min.js in its Plot 0.6.17.
LIBRARIES = {
    "d3-7.9.2.min.js": "912111098ea99503a6f4967361d2bbdc9dbf58cf9c678c8e27e5b02d1a07f0c1",
    "plot-0.6.17.umd.min.js": "4358086467740777dd788d6b27a95cebdbaefdd50c730a3060117073bd7134cb",
}


class Outline(HTMLParser):
    """Elements with their attributes, the text outside scripts, and tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.mismatched: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.mismatched.append(tag)

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page(document: dict[str, Any]) -> str:
    return plan_page(document, command=COMMAND)


def outline(document: dict[str, Any]) -> Outline:
    return Outline(page(document))


def embedded(text: str) -> dict[str, Any]:
    """What the charts are given, as the page's script reads it."""
    found = re.search(r'<script type="application/json" id="plan-data">(.*?)</script>', text)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def spoilt(value: Any) -> Any:
    """The same document with every text replaced by a hostile one."""
    match value:
        case dict():
            return {key: spoilt(entry) for key, entry in value.items()}
        case list():
            return [spoilt(entry) for entry in value]
        case str():
            return HOSTILE
        case _:
            return value


@pytest.fixture(scope="module")
def full() -> Outline:
    return outline(documents.full())


def test_a_page_has_its_sections_in_order_and_each_is_named_by_its_heading(full: Outline) -> None:
    assert [section["id"] for section in full.named("section")] == SECTIONS
    headings = {heading["id"] for heading in full.named("h2")}
    assert headings == {section["aria-labelledby"] for section in full.named("section")}
    assert len(full.named("h1")) == 1


@pytest.mark.parametrize(
    "document",
    [documents.bare, documents.swept, documents.too_large, documents.staged, documents.full],
)
def test_every_tag_is_closed_and_every_name_is_used_once(
    document: Callable[[], dict[str, Any]],
) -> None:
    found = outline(document())
    assert (found.mismatched, found.open) == ([], [])
    names = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(names) == len(set(names))


def test_tables_have_captions_and_their_heads_say_what_they_head(full: Outline) -> None:
    assert len(full.named("caption")) == len(full.named("table")) > 8
    assert {head.get("scope") for head in full.named("th")} == {"col", "row"}


def test_every_chart_says_in_words_what_it_shows(full: Outline) -> None:
    charts = [box for box in full.named("div") if "data-chart" in box]
    assert len(charts) == 11
    assert all(box["data-label"] for box in charts)
    assert len(full.named("figcaption")) == len(full.named("figure")) == len(charts)


def test_each_slider_has_a_label_and_an_output(full: Outline) -> None:
    sliders = {box["id"] for box in full.named("input")}
    assert sliders == {"price", "utilisation"}
    assert sliders == {label["for"] for label in full.named("label")}
    assert sliders == {output["for"] for output in full.named("output")}


@pytest.mark.parametrize(
    "said",
    [
        "Kimi K3 fits on one 8x-b300 (8 GPUs, TP8, vLLM 0.33.0) in 10 of 20 cases asked for",
        "a reader waits 1.54 s for the first token",  # 0.9 + 0.02 x 32
        ", the first of the 20 loads asked for, a reader waits ",
        "1.16 to 2.08 s",  # 1.54 less 25 %, and 35 % more
        "an hour and, with that load, $6.93 for a million output tokens ($5.20 to $9.36)",
        "costs less than Kimi K3.1 Pro API from 612 million tokens a day",
        "1.17 \u00d7",  # routed experts: 8.1 of 6.9 ms
        "70.7 min",  # 240 + 3120 + 372 + 410 + 95 + 3 seconds
        "no public measurement of Kimi K3.1 Pro on data-centre GPUs exists",
        "Modelled, not measured",
        COMMAND,
    ],
)
def test_the_numbers_that_decide_stand_in_the_page_without_a_script(
    full: Outline, said: str
) -> None:
    assert said in full.text


def test_numbers_behind_charts_are_open_until_a_script_folds_them(full: Outline) -> None:
    behind = [d for d in full.named("details") if "open" in d]
    assert len(behind) == len(full.named("details")) - 1  # all but the licences
    assert all("hidden" in box for box in full.named("form"))


def test_a_plan_that_does_not_fit_says_so_first_and_says_the_way_out() -> None:
    found = outline(documents.too_large())
    assert "Kimi K3 does not fit on one 8x-h200" in found.text
    assert "--nodes 2 fits as TP8xPP2" in found.text


@pytest.mark.parametrize("key", OPTIONAL)
@pytest.mark.parametrize("left", ["absent", "null"])
def test_a_part_that_is_missing_leaves_one_sentence_and_all_sections(key: str, left: str) -> None:
    document = documents.full()
    document["result"][key] = None
    if left == "absent":
        del document["result"][key]
    found = outline(document)
    assert [section["id"] for section in found.named("section")] == SECTIONS
    assert found.mismatched == []


def test_what_nobody_has_published_stands_in_the_conclusion() -> None:
    found = outline(documents.loaded(model_id="kimi-k3.1-pro", engine="vllm@main"))
    assert "Modelled, not measured" in found.text
    conclusion = found.text.split("Memory per GPU")[0]
    assert "no public tensor list of this release says so" in conclusion
    assert "its memory rules and flags may move" in conclusion


def test_a_plan_of_today_has_a_sentence_for_each_part_it_lacks() -> None:
    found = outline(documents.bare())
    for part in ("No speed:", "No curves:", "No breakdown:", "No cost:", "No comparison:",
                 "No start-up time:", "No map:"):  # fmt: skip
        assert part in found.text


def test_hostile_texts_stay_texts(full: Outline) -> None:
    document = documents.full()
    bad = spoilt({key: document[key] for key in ("inputs", "result", "assumptions", "warnings")})
    text = plan_page({**document, **bad, "version": HOSTILE}, command=HOSTILE)
    found = Outline(text)
    assert (found.mismatched, found.named("img")) == ([], [])
    assert len(found.named("script")) == len(full.named("script"))
    assert not [name for _, attributes in found.elements for name in attributes if name[:2] == "on"]
    text.encode("utf-8")


@settings(max_examples=25, deadline=None)
@given(st.text())
def test_any_name_of_a_model_comes_back_as_it_went_in(name: str) -> None:
    document = deepcopy(BARE)
    document["inputs"]["model"] = name
    found = Outline(page(document))
    assert found.mismatched == []
    assert len(found.named("script")) == 6


def test_addresses_in_sources_become_links_and_only_with_http() -> None:
    document = documents.bare()
    document["assumptions"][0]["source"] = "https://example.com/a?b=1&c=2, javascript:alert(1)"
    links = [link["href"] for link in outline(document).named("a")]
    assert "https://example.com/a?b=1&c=2" in links
    assert {str(link).split(":")[0] for link in links if not str(link).startswith("#")} == {"https"}


def test_nothing_is_loaded_from_anywhere(full: Outline) -> None:
    loading = [
        n for n, a in full.elements if {"src", "srcset", "data", "poster", "action"} & set(a)
    ]
    assert loading == []
    assert not {"link", "iframe", "object", "embed", "base", "img"} & {n for n, _ in full.elements}
    assert "@import" not in page(documents.bare())


def test_only_the_scripts_of_the_page_may_run(full: Outline) -> None:
    (policy,) = [m["content"] for m in full.named("meta") if m.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy.count("'sha256-") == len(full.named("script")) - 1
    assert "eval" not in policy


def test_the_same_document_gives_the_same_bytes_whatever_the_order_of_its_keys() -> None:
    document = documents.full()
    assert page(document) == page(json.loads(json.dumps(document, sort_keys=True)))


def test_a_page_is_small_enough_to_send() -> None:
    assert len(page(documents.full()).encode()) < 1_200_000


def test_the_page_says_what_is_left_and_how_many_as_the_text_does() -> None:
    plan = planned()
    document = documents.loaded()
    document["result"]["performance"]["workload"]["concurrency"] = 1
    said, found = as_text(plan), outline(document)
    (left,) = re.findall(r"^  left +#* +([\d.]+)", said, flags=re.MULTILINE)
    assert re.findall(r"the engine's cacheleft([\d]+\.\d)", found.text) == [left]
    assert "With 1 request at once of " in found.text
    assert "the first of" not in found.text
    assert "left" not in as_text(planned(contexts=(8_192, 131_072))).partition("per GPU")[0]


def test_bars_of_memory_add_up_to_the_gpu() -> None:
    for document in (documents.full(), documents.bare(), documents.staged()):
        for bar in embedded(page(document))["memory"]:
            assert sum(bar["parts"].values()) == bar["capacity"]


def test_a_bar_that_does_not_fit_is_longer_than_the_gpu() -> None:
    (bar,) = embedded(page(documents.too_large()))["memory"]
    assert sum(bar["parts"].values()) > bar["capacity"]


def test_cases_of_a_sweep_are_the_map_where_no_other_map_is_given() -> None:
    cells = embedded(page(documents.swept()))["heatmap"]
    assert len(cells) == 20  # five contexts by four batches
    assert {cell["tpot_s"] for cell in cells} == {None}


@pytest.mark.parametrize("pareto", [[0, 3], "rows"])
def test_a_frontier_is_given_as_places_or_as_rows(pareto: Any) -> None:
    document = documents.full()
    rows = document["result"]["candidates"]
    document["result"]["pareto"] = [rows[0], rows[3]] if pareto == "rows" else pareto
    best = [n for n, row in enumerate(embedded(page(document))["candidates"]) if row["pareto"]]
    assert best == [0, 3]


@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_the_libraries_are_the_published_files_and_their_licences_go_with_them(name: str) -> None:
    assert sha256((ASSETS / name).read_bytes()).hexdigest() == LIBRARIES[name]
    licence = name.removesuffix(".min.js").removesuffix(".umd") + ".LICENSE.txt"
    assert "Permission to use, copy, modify" in (ASSETS / licence).read_text()


PAIRS = [
    ("ink", "panel"), ("ink", "page"), ("muted", "panel"), ("muted", "page"), ("accent", "panel"),
    ("accent", "page"), ("good", "good-bg"), ("part", "part-bg"), ("bad", "bad-bg"),
    ("note", "note-bg"), ("ink", "note-bg"), ("muted", "no"),
    *((f"on-{part}", f"m-{part}") for part in
      ("weights", "activations", "graphs", "engine", "extra", "kv", "state", "pool", "left")),
    *(("ink", f"h{n}") for n in range(1, 6)),
]  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_is_readable_in_both_themes(theme: str, text: str, ground: str) -> None:
    light, dark = (ASSETS / "plan.css").read_text().split("prefers-color-scheme: dark")
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]+);", {"light": light, "dark": dark}[theme]))
    one, other = sorted((luminance(colours[text]), luminance(colours[ground])))
    assert (other + 0.05) / (one + 0.05) >= 4.5  # WCAG 2.2, 1.4.3


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_planning_without_a_page_does_not_load_the_page() -> None:
    code = (
        "import sys, k31ctl.cli.plan, k31ctl.report.plan; "
        "sys.exit(any('report.html' in name for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(("engine", "known"), [("vllm", True), ("tensorrt-llm", False)])
def test_only_words_that_an_engine_has_are_promised_in_its_log(engine: str, known: bool) -> None:
    page = plan_page(
        json.loads(plan_document.document(planned(engine=engine), ())), command="k31ctl plan"
    )
    assert ("At its start the engine will log" in page) is known
