"""A measurement as one page that needs no network and no script."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from k31ctl.bench.planned import PlannedCurve
from k31ctl.bench.repeats import interval
from k31ctl.report.bench_diff_text import figure_name, shown
from k31ctl.report.html_bench_charts import (
    curve_charts,
    details,
    distribution_charts,
    gauge_charts,
    loads,
    timeline,
)
from k31ctl.report.html_elements import Head, Markup, el, missing, section, table
from k31ctl.report.html_page import masthead, page
from k31ctl.report.html_read import Row, count, mapping, number, rows, text
from k31ctl.report.html_words import NONE, figure

_MS: Final = 1e3
_PARTS: Final = (
    ("result", "Result"),
    ("curve", "Throughput and latency"),
    ("distributions", "Distributions"),
    ("time", "Over time"),
    ("trust", "Trust"),
    ("reproduce", "Reproduce"),
)
_REPEATED: Final = (
    ("output_tok_s",), ("request_rate",), ("ttft_s", "p50"), ("ttft_s", "p99"), ("itl_s", "p99"),
    ("tpot_s", "mean"), ("e2e_s", "mean"),
)  # fmt: skip


def bench_page(document: Mapping[str, Any], planned: PlannedCurve | None) -> str:
    """The page of a run; the same document gives the same bytes.

    ``document`` has ``version``, ``command``, ``started``, ``state``, ``server``, ``inputs``,
    ``stages``, ``series``, ``notes`` and ``tokens_from``; what is absent is left out.
    """
    server = mapping(document.get("server"))
    title = f"{text(server.get('model'), 'A model')} measured at {text(server.get('url'), '?')}"
    return page(
        title=title,
        version=text(document.get("version")),
        styles=("plan.css", "bench.css"),
        parts=_PARTS,
        masthead=_masthead(document, title),
        sections=_sections(document, planned),
    )


def _sections(document: Mapping[str, Any], planned: PlannedCurve | None) -> Iterator[Markup]:
    stages, series = rows(document.get("stages")), rows(document.get("series"))
    yield section("result", "Result", *_result(stages))
    curves = list(curve_charts(stages, planned, mapping(document.get("inputs"))))
    none = missing("One load and no plan: nothing to draw a curve through.")
    yield section(
        "curve", "Throughput and latency", el("div", *curves, class_="grid") if curves else none
    )
    drawn = list(distribution_charts(series))
    none = missing("No request was answered, or the record has no curves.")
    whole = el("div", *drawn, class_="grid")
    yield section("distributions", "Distributions", whole if drawn else none)
    yield section("time", "Over time", *(_times(series) or [none]))
    yield section("trust", "Trust", *_trust(document, stages))
    yield section("reproduce", "Reproduce", *_reproduce(document))


def _masthead(document: Mapping[str, Any], title: str) -> Markup:
    stages = rows(document.get("stages"))
    invalid = [s for s in stages if not mapping(s.get("client")).get("is_valid", True)]
    state = text(document.get("state"), "complete")
    words, kind = ("Valid", "good") if state == "complete" else (state.capitalize(), "part")
    if invalid:
        words, kind = f"Not valid: {len(invalid)} of {len(stages)} stages", "bad"
    server = mapping(document.get("server"))
    about = (
        text(document.get("started"))[:10],
        text(server.get("version")),
        f"{len(loads(stages))} loads, {len(stages)} stages",
    )
    return masthead("Load test", title, words=words, kind=kind, about=about)


def _result(stages: Sequence[Row]) -> Iterator[Markup]:
    if not stages:
        yield missing("No stage has ended.")
        return
    best = max(stages, key=lambda stage: number(stage.get("output_tok_s")) or 0.0)
    tiles = (
        ("Output tokens per second", figure(best.get("output_tok_s")), text(best.get("name"))),
        ("First token, p50", f"{_ms(best, 'ttft_s', 'p50')} ms",
         f"p99 {_ms(best, 'ttft_s', 'p99')}"),
        ("Per output token, mean", f"{_ms(best, 'tpot_s', 'mean')} ms",
         f"event gap p99 {_ms(best, 'itl_s', 'p99')}"),
        ("Failed", figure(count(best.get("errors"))),
         f"of {count(best.get('requests')):,} requests"),
    )  # fmt: skip
    yield el(
        "dl",
        *(el("div", el("dt", a), el("dd", b, el("small", c))) for a, b, c in tiles),
        class_="tiles",
    )
    yield _stage_table(stages)
    yield from _repeats(stages)
    yield from _errors(stages)


def _stage_table(stages: Sequence[Row]) -> Markup:
    heads = (
        Head("load", is_number=False), Head("requests/s"), Head("output tokens/s"),
        Head("TTFT p50"), Head("TTFT p99"), Head("TPOT mean"), Head("gap p99"),
        Head("end to end p50"), Head("goodput/s"), Head("failed"), Head("valid", is_number=False),
    )  # fmt: skip
    body = []
    for name, runs in loads(stages).items():
        for stage in runs:
            repeat = count(stage.get("repeat"))
            is_valid = mapping(stage.get("client")).get("is_valid")
            body.append(
                (
                    f"{name}, repeat {repeat + 1}" if len(runs) > 1 else name,
                    figure(stage.get("request_rate")),
                    figure(stage.get("output_tok_s")),
                    _ms(stage, "ttft_s", "p50"),
                    _ms(stage, "ttft_s", "p99"),
                    _ms(stage, "tpot_s", "mean"),
                    _ms(stage, "itl_s", "p99"),
                    _ms(stage, "e2e_s", "p50"),
                    figure(stage.get("goodput")),
                    figure(count(stage.get("errors"))),
                    "yes" if is_valid else "no",
                )
            )
    return table("Every stage; latencies in ms, of answered requests", heads, body)


def _repeats(stages: Sequence[Row]) -> Iterator[Markup]:
    body = []
    for name, runs in loads(stages).items():
        for path in _REPEATED:
            values = [_at(run, *path) for run in runs]
            known = [value for value in values if value is not None]
            if len(known) == len(runs) > 1:
                metric, found = ".".join(path), interval(known)
                between = f"{shown(metric, found.low)} to {shown(metric, found.high)}"
                body.append((name, figure_name(metric), shown(metric, found.mean), between))
    if body:
        heads = (
            Head("load", is_number=False), Head("figure", is_number=False), Head("mean"),
            Head("95 % interval"),
        )  # fmt: skip
        yield table("Means over repeats, with Student's interval", heads, body)


def _errors(stages: Sequence[Row]) -> Iterator[Markup]:
    body = [
        (text(stage.get("name")), kind, figure(number),
         text(mapping(stage.get("error_details")).get(kind))[:200])
        for stage in stages
        for kind, number in mapping(stage.get("errors_by_kind")).items()
    ]  # fmt: skip
    if body:
        heads = (
            Head("load", is_number=False), Head("kind", is_number=False), Head("requests"),
            Head("for example", is_number=False),
        )  # fmt: skip
        yield table("What failed", heads, body)


def _times(series: Sequence[Row]) -> list[Markup]:
    found: list[Markup] = []
    for run in series:
        charts = [*timeline(run), *gauge_charts(run)]
        if charts:
            repeat = count(run.get("repeat"))
            name = text(run.get("name")) + (f", repeat {repeat + 1}" if repeat else "")
            found.append(details(name, charts, is_open=not found))
    return found


def _trust(document: Mapping[str, Any], stages: Sequence[Row]) -> Iterator[Markup]:
    notes = [str(note) for note in document.get("notes") or ()]
    reasons = [
        f"{text(stage.get('name'))}: {reason}"
        for stage in stages
        for reason in mapping(stage.get("client")).get("reasons") or ()  # type: ignore[attr-defined]
    ]
    if notes or reasons:
        said = [*dict.fromkeys(reasons), *notes]
        beware = el("ul", *(el("li", note) for note in said))
        yield el("div", el("h3", "Beware"), beware, class_="notice")
    heads = (
        Head("load", is_number=False), Head("lag mean, ms"), Head("lag p99, ms"),
        Head("of a gap, %"), Head("core used, %"), Head("waited for a core, s"),
    )  # fmt: skip
    body = []
    for stage in stages:
        client = mapping(stage.get("client"))
        of_gap, used = number(client.get("lag_of_itl")), number(client.get("cpu_fraction"))
        body.append(
            (
                text(stage.get("name")),
                _ms(client, "lag", "mean_s"),
                _ms(client, "lag", "p99_s"),
                NONE if of_gap is None else f"{of_gap:.1%}"[:-1],
                NONE if used is None else f"{used:.0%}"[:-1],
                figure(client.get("cpu_wait_s")),
            )
        )
    yield table("How far the client itself may have been behind", heads, body)
    yield from _server_metrics(stages)
    yield from _gpus(stages)


def _server_metrics(stages: Sequence[Row]) -> Iterator[Markup]:
    body = []
    for stage in stages:
        told = mapping(stage.get("server_metrics"))
        if told:
            said = [f"{name} {figure(value)}" for name, value in told.items() if number(value)]
            body.append((text(stage.get("name")), text(told.get("engine")), ", ".join(said)))
    if body:
        heads = tuple(Head(name, is_number=False) for name in ("load", "engine", "what it says"))
        yield table("What the server counted of itself, in seconds and counts", heads, body)


def _gpus(stages: Sequence[Row]) -> Iterator[Markup]:
    body = []
    for stage in stages:
        used = mapping(stage.get("gpu"))
        if used:
            names = used.get("names")
            busy = number(used.get("utilisation_mean"))
            body.append(
                (
                    text(stage.get("name")),
                    f"{len(names)} x {names[0]}" if isinstance(names, list) and names else NONE,
                    figure(used.get("power_mean_w")),
                    NONE if busy is None else f"{busy * 100:.0f}",
                    figure(used.get("output_tokens_per_j")),
                )
            )
    if body:
        heads = (
            Head("load", is_number=False), Head("GPUs", is_number=False), Head("power, W"),
            Head("busy, %"), Head("output tokens per joule"),
        )  # fmt: skip
        yield table("The GPUs of the machine that measured", heads, body)


def _reproduce(document: Mapping[str, Any]) -> Iterator[Markup]:
    command = document.get("command")
    if isinstance(command, list):
        yield el("pre", el("code", shlex.join(map(str, command))))
    prompts = text(document.get("tokens_from"))
    facts = {
        "version": text(document.get("version")),
        "started": text(document.get("started")),
        "ended": text(document.get("ended")),
        "python": text(document.get("python")),
        "platform": text(document.get("platform")),
        "prompts": prompts,
        "record": text(document.get("record")),
    }
    said = (el("div", el("dt", k), el("dd", v)) for k, v in facts.items() if v)
    yield el("dl", *said, class_="facts")
    asked = [
        (name, json.dumps(value, sort_keys=True))
        for part in ("inputs", "server")
        for name, value in sorted(mapping(document.get(part)).items())
    ]
    heads = (Head("setting", is_number=False), Head("value", is_number=False))
    yield el("details", el("summary", "All settings"), table("As asked, and as told", heads, asked))


def _at(found: Any, *names: str) -> float | None:
    for name in names:
        found = mapping(found).get(name)
    return number(found)


def _ms(found: Row, *names: str) -> str:
    value = _at(found, *names)
    return NONE if value is None else figure(value * _MS)
