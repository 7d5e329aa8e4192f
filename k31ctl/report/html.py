"""A plan as one page that needs no network: text, tables and charts for whoever decides."""

import json
from collections.abc import Mapping
from typing import Final

from k31ctl.report.html_conclusion import conclusion_section, deployment, model_name, verdict
from k31ctl.report.html_cost import cost_inputs, cost_section
from k31ctl.report.html_elements import Markup, el
from k31ctl.report.html_memory import capacity_section, heatmap, memory_bars, memory_section
from k31ctl.report.html_options import (
    candidates,
    cold_start_section,
    options_section,
    start_parts,
)
from k31ctl.report.html_page import asset, masthead, page
from k31ctl.report.html_read import mapping, text
from k31ctl.report.html_sources import reproduce_section, sources_section
from k31ctl.report.html_speed import breakdown_parts, curve_points, speed_section

_LIBRARIES: Final = ("d3-7.9.2.min.js", "plot-0.6.17.umd.min.js")
_SCRIPTS: Final = (*_LIBRARIES, "plan_charts.js", "plan_cost.js", "plan.js")
_LICENCES: Final = ("d3-7.9.2.LICENSE.txt", "plot-0.6.17.LICENSE.txt")
_PARTS: Final = (
    ("conclusion", "Conclusion"),
    ("memory", "Memory"),
    ("capacity", "Capacity"),
    ("speed", "Speed"),
    ("cost", "Cost"),
    ("options", "Options"),
    ("start", "Start"),
    ("assumptions", "Assumptions"),
    ("reproduce", "Reproduce"),
)


def plan_page(document: Mapping[str, object], *, command: str) -> str:
    """The page of a plan's JSON document; ``command`` is the one that makes it again.

    The same document gives the same bytes. Sections whose keys are absent say so in a sentence.
    """
    title = f"{model_name(document)} on {deployment(document)}"
    return page(
        title=f"{title} · capacity plan",
        version=text(document.get("version")),
        styles=("plan.css",),
        parts=_PARTS,
        masthead=_masthead(document, title),
        sections=_sections(document, command),
        behind=(
            _footer(),
            el("script", _data(document), type="application/json", id="plan-data"),
        ),
        scripts=_SCRIPTS,
    )


def _sections(document: Mapping[str, object], command: str) -> list[Markup]:
    return [
        conclusion_section(document),
        memory_section(document),
        capacity_section(document),
        speed_section(document),
        cost_section(document),
        options_section(document),
        cold_start_section(document),
        sources_section(document),
        reproduce_section(document, command=command),
    ]


def _masthead(document: Mapping[str, object], title: str) -> Markup:
    result = mapping(document.get("result"))
    words, kind = verdict(result)
    engine, layout = mapping(result.get("engine")), mapping(result.get("layout"))
    about = (
        mapping(result.get("hardware")).get("gpu"),
        layout.get("text"),
        engine.get("name"),
    )
    return masthead("Capacity plan", title, words=words, kind=kind, about=map(text, about))


def _footer() -> Markup:
    licences = (el("pre", asset(name)) for name in _LICENCES)
    summary = el("summary", "Charts are drawn by d3 7.9.2 and Observable Plot 0.6.17: licences")
    return el("footer", el("details", summary, *licences))


def _data(document: Mapping[str, object]) -> Markup:
    """What the charts draw, as JSON in which no text can end the element that holds it."""
    result = mapping(document.get("result"))
    drawn = {
        "memory": memory_bars(document),
        "heatmap": heatmap(result),
        "curve": curve_points(result),
        "breakdown": breakdown_parts(result),
        "cost": cost_inputs(document),
        "candidates": candidates(result),
        "start": start_parts(result),
        "concurrency": mapping(mapping(result.get("performance")).get("workload")).get(
            "concurrency"
        ),
    }
    written = json.dumps(drawn, sort_keys=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return Markup(written)
