"""A plan as one page that needs no network: text, tables and charts for whoever decides."""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from typing import Final

from k31ctl.report.html_conclusion import conclusion_section, deployment, verdict
from k31ctl.report.html_cost import cost_inputs, cost_section
from k31ctl.report.html_elements import Markup, el, join
from k31ctl.report.html_memory import capacity_section, heatmap, memory_bars, memory_section
from k31ctl.report.html_options import (
    candidates,
    cold_start_section,
    options_section,
    start_parts,
)
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
    inputs = mapping(document.get("inputs"))
    title = f"{text(inputs.get('model'), 'A model')} on {deployment(document)}"
    scripts = [_asset(name) for name in _SCRIPTS]
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="generator", content=f"k31ctl {text(document.get('version'))}"),
        el("title", title, " · capacity plan"),
        el("style", Markup(_asset("plan.css"))),
    )
    body = el(
        "body",
        el("a", "Skip to the conclusion", href="#conclusion", class_="skip"),
        _masthead(document, title),
        _contents(),
        el("main", *_sections(document, command)),
        _footer(),
        el("script", _data(document), type="application/json", id="plan-data"),
        *(el("script", Markup(script)) for script in scripts),
    )
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


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
    return el(
        "header",
        el("p", "Capacity plan", class_="kicker"),
        el("h1", title),
        el("p", el("span", words, class_=f"verdict {kind}"),
           " ", join((text(part) for part in about if text(part)), " · "), class_="about"),
    )  # fmt: skip


def _contents() -> Markup:
    entries = (el("li", el("a", title, href=f"#{name}")) for name, title in _PARTS)
    return el("nav", el("ol", *entries), aria_label="Parts of this page")


def _footer() -> Markup:
    licences = (el("pre", _asset(name)) for name in _LICENCES)
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


def _policy(scripts: list[str]) -> str:
    """Nothing may be loaded, and no script may run but the ones in this file."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return (resources.files("k31ctl.report") / "assets" / name).read_text(encoding="utf-8")
