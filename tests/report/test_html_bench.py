"""The page of a measurement: well-formed, without a network, whole in a real browser."""

import json
import os
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.bench.past import read_page
from k31ctl.bench.planned import planned_curve, planned_for
from k31ctl.errors import InputError
from k31ctl.report.html_bench import bench_page
from k31ctl.report.svg import axis
from tests.bench.runs import finished
from tests.bench.sse_server import Asked, Step, answer, running_server
from tests.program import program
from tests.report.browser import Page, browser, executable
from tests.report.test_html import Outline

HOSTILE = "</style><script>alert(1)</script><img src=x>&\"'\x00\u202e\ud800<!--"
PICTURES = os.environ.get("K31CTL_TEST_PICTURES")


def plan(**load: int) -> dict[str, Any]:
    """A plan's document, as far as curves are drawn of it."""

    def of(value: float, name: str) -> dict[str, float]:
        return {name: value, f"{name}_low": value * 0.8, f"{name}_high": value * 1.3}

    rows = [
        {"concurrency": n, "fits": n < 8}
        | of(20.0 * n, "output_tok_s")
        | of(0.1 * n, "ttft_s")
        | of(0.01 + 0.001 * n, "tpot_s")
        for n in (1, 2, 4, 8)
    ]
    return {
        "schema": "k31ctl/plan/v1",
        "inputs": {"model": "kimi-k3", "hardware": "8x-b300"},
        "result": {
            "curve": rows,
            "performance": {"workload": {"prompt_tokens": 16, "output_tokens": 4} | load},
        },
    }


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two loads with repeats and failures."""

    def sometimes(asked: Asked) -> Iterator[Step]:
        if asked.number % 7 == 3:
            yield b"HTTP/1.1 503 X\r\nContent-Length: 2\r\n\r\nno"
            return
        yield 0.02
        yield from answer(asked)

    folder = tmp_path_factory.mktemp("records") / "run"
    with running_server(sometimes) as server:
        finished(server.url, concurrency=(1, 3), num_requests=12, repeat=2, folder=folder)
    return folder


def test_the_page_of_a_record_is_well_formed_and_holds_every_part(record: Path) -> None:
    found = Outline(bench_page(read_page(record), None))
    assert (found.mismatched, found.open) == ([], [])
    for name in ("result", "curve", "distributions", "time", "trust", "reproduce"):
        assert name in [section.get("id") for section in found.named("section")]
    drawings = [each for each in found.named("svg") if each.get("role") == "img"]
    assert len(drawings) >= 6
    assert all(each["aria-label"] for each in drawings)
    assert "http_503" in found.text


def test_a_page_loads_nothing_and_runs_nothing(record: Path) -> None:
    found = Outline(bench_page(read_page(record), planned_curve(plan(), where="plan")))
    assert not {"script", "link", "img", "iframe"} & {name for name, _ in found.elements}
    assert not [a for _, a in found.elements if {"src", "srcset", "action"} & set(a)]
    (policy,) = [m["content"] for m in found.named("meta") if m.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_a_plan_is_drawn_into_the_curves_and_another_load_is_said(record: Path) -> None:
    same, other = plan(), plan(prompt_tokens=99)
    document = read_page(record)
    pages = [Outline(bench_page(document, planned_curve(p, where="p"))) for p in (same, other)]
    without = Outline(bench_page(document, None))
    assert len(pages[0].named("polygon")) == 2
    assert without.named("polygon") == []
    assert "planned, 4 at a time" in pages[0].text
    assert "planned, 8 at a time" not in pages[0].text  # it does not fit
    assert ["another load" in page.text for page in pages] == [False, True]


def test_the_plan_of_a_record_is_taken_where_no_other_is_given(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan(output_tokens=5)))
    own, other = planned_for({"plan": plan(), "record": "r"}, None), planned_for({}, path)
    assert own and other
    assert (own.output_tokens, other.output_tokens) == (4, 5)
    assert planned_for({"plan": None}, None) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "k31ctl/plan/v1", "result": {}}'])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(InputError):
        planned_for({}, path)


def test_the_same_record_gives_the_same_bytes(record: Path) -> None:
    assert bench_page(read_page(record), None) == bench_page(read_page(record), None)


def test_words_of_a_server_stay_words(record: Path) -> None:
    document = deepcopy(read_page(record))
    document["server"] |= {"model": HOSTILE, "version": HOSTILE}
    document["notes"], document["command"] = [HOSTILE], [HOSTILE]
    for stage in document["stages"]:
        stage["name"] = HOSTILE
        stage["error_details"] = {kind: HOSTILE for kind in stage["errors_by_kind"]}
    found = Outline(bench_page(document, None))
    assert found.mismatched == []
    assert not found.named("script")
    assert not found.named("img")


@settings(max_examples=30)
@given(st.data())
def test_a_record_that_lacks_anything_is_still_a_page(record: Path, data: st.DataObject) -> None:
    document = deepcopy(read_page(record))
    for _ in range(data.draw(st.integers(1, 6))):
        at: Any = document
        while isinstance(at, dict | list) and at:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(at[key], dict | list) or data.draw(st.booleans()):
                at[key] = None
                break
            at = at[key]
    assert Outline(bench_page(document, None)).mismatched == []


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=20), st.booleans(), st.booleans())
def test_an_axis_holds_its_values_and_its_ticks(
    values: list[float], is_log: bool, from_zero: bool
) -> None:
    found = axis("x", values, is_log=is_log, from_zero=from_zero)
    assert all(-1e-9 <= found.share(value) <= 1 + 1e-9 for value in values)
    ticks = found.ticks()
    assert 1 <= len(ticks) <= 20
    assert ticks == sorted(ticks)
    assert all(-0.01 <= found.share(value) <= 1.01 for value in ticks)


def test_report_and_html_write_the_page(record: Path, tmp_path: Path) -> None:
    for arguments in (("report", str(record)), ("report", str(record / "run.json"))):
        path = tmp_path / "page.html"
        done = program("bench", *arguments, "--html", str(path))
        assert (done.returncode, done.stderr) == (0, "")
        assert path.read_text().startswith("<!DOCTYPE html>")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.skipif(executable() is None, reason="no Chromium or Chrome on PATH")
@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_it_without_a_complaint_or_a_request(
    tab: Page, record: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "bench.html"
    text = bench_page(read_page(record), planned_curve(plan(), where="plan"))
    path.write_text(text, encoding="utf-8")
    tab.open(path, width=width, scheme=scheme)
    assert tab.errors == []
    assert tab.requests == [path.as_uri()]
    assert tab.run("document.documentElement.scrollWidth") <= width
    shapes = "[...document.querySelectorAll('svg.drawn polyline')]"
    shown = f"{shapes}.filter(line => line.checkVisibility())"
    sizes = "line.getBBox().width + line.getBBox().height"
    assert tab.run(f"{shown}.every(line => {sizes} > 0)")
    assert tab.run(f"{shown}.length") >= 6
    outside = (
        "[...document.querySelectorAll('svg.drawn text')].filter(text => text.checkVisibility())"
        ".filter(text => { const a = text.getBoundingClientRect(), b = text.ownerSVGElement"
        ".getBoundingClientRect(); return a.left < b.left - 12 || a.right > b.right + 12 }).length"
    )
    assert tab.run(outside) == 0
    if PICTURES:
        (Path(PICTURES) / f"bench-{scheme}-{width}.png").write_bytes(tab.picture())


@pytest.mark.skipif(executable() is None, reason="no Chromium or Chrome on PATH")
def test_it_prints(tab: Page, record: Path, tmp_path: Path) -> None:
    path = tmp_path / "bench.html"
    path.write_text(bench_page(read_page(record), None), encoding="utf-8")
    tab.open(path)
    paper = tab.paper()
    assert paper.startswith(b"%PDF")
    assert paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ") <= 12
