"""The charts of a measurement: throughput and latency, distributions, and what happened when."""

from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from typing import Any, Final

from k31ctl.bench.planned import PlannedCurve, Predicted
from k31ctl.bench.series import QUANTILES
from k31ctl.report.html_elements import Head, Markup, el, table
from k31ctl.report.html_read import Row, count, mapping, number, rows, text
from k31ctl.report.html_words import NONE, figure
from k31ctl.report.svg import Band, Line, axis, line_chart

_MS: Final = 1e3
_WIDE: Final = 20.0  # a range this many times as wide as its start is drawn by its logarithm
_BELOW: Final = 100.0
_SHOWN_PERCENTS: Final = (1, 10, 25, 50, 75, 90, 95, 99, 99.9)
_PLAN_STYLE: Final = 5
LATENCIES: Final = {
    "ttft_s": ("Time to first token", "TTFT, ms"),
    "itl_s": ("Gap between events", "gap, ms"),
    "tpot_s": ("Time per output token", "TPOT, ms"),
    "e2e_s": ("End to end", "end to end, ms"),
}


def loads(stages: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the stages of each load, its repeats in order."""
    found: dict[str, list[Row]] = {}
    for stage in stages:
        found.setdefault(text(stage.get("name"), "load"), []).append(stage)
    return found


def curve_charts(
    stages: Sequence[Row], planned: PlannedCurve | None, asked: Row
) -> Iterator[Markup]:
    """Yield latency over throughput, TPOT and TTFT, with a plan's prediction where there is one."""
    for name, part, title in (
        ("tpot_s", "mean", "Time per output token over throughput"),
        ("ttft_s", "p50", "Time to first token over throughput"),
    ):
        points = [
            (label, mean_of(runs, "output_tok_s"), mean_of(runs, name, part), len(runs))
            for label, runs in loads(stages).items()
        ]
        known = [(label, x, y * _MS, n) for label, x, y, n in points if x and y is not None]
        if known and (len(known) > 1 or planned is not None):
            yield _curve(name, part, title, known, planned, asked)


def _curve(
    name: str,
    part: str,
    title: str,
    known: Sequence[tuple[str, float, float, int]],
    planned: PlannedCurve | None,
    asked: Row,
) -> Markup:
    measured = Line(
        name="measured",
        points=tuple((x, y) for _, x, y, _ in known),
        style=0,
        has_marks=True,
        notes=tuple(f"{label}: {x:,.0f} tokens/s, {y:,.4g} ms" for label, x, y, _ in known),
    )
    lines, bands = [measured], []
    said = f"Each point is a load, its {LATENCIES[name][1].partition(',')[0]} the {part}"
    said += ", means over its repeats." if any(n > 1 for *_, n in known) else "."
    heads = (Head("load", is_number=False), Head("output tokens/s"), Head("ms"))
    body = [(label, figure(x), figure(y)) for label, x, y, _ in known]
    if planned is not None:
        line, band = _predicted(planned, name)
        lines.append(line)
        bands.append(band)
        body += [
            (f"planned, {p.concurrency} at a time", figure(x), figure(y))
            for p, (x, y) in zip(planned.points, line.points, strict=True)
        ]
        load = (planned.prompt_tokens, planned.output_tokens)
        if load != (asked.get("prompt_tokens"), asked.get("output_tokens")):
            said += " The plan is of another load than was measured."
        said += (
            f" The plan is for {planned.name} with {planned.prompt_tokens:,} prompt and "
            f"{planned.output_tokens:,} output tokens; its band is from low to high latency."
        )
    across = [x for line in lines for x, _ in line.points]
    up = [y for line in lines for _, y in line.points]
    up += [y for band in bands for _, low, high in band.points for y in (low, high)]
    return line_chart(
        title,
        said,
        x=axis("output tokens per second", across, is_log=_is_wide(across)),
        y=axis(LATENCIES[name][1], up, is_log=_is_wide(up), from_zero=not _is_wide(up)),
        lines=lines,
        bands=bands,
        numbers=table(title, heads, body),
    )


def _predicted(planned: PlannedCurve, name: str) -> tuple[Line, Band]:
    found: list[tuple[float, Predicted]] = [
        (point.output_tok_s.value, getattr(point, name)) for point in planned.points
    ]
    line = Line(
        name="planned",
        points=tuple((x, p.value * _MS) for x, p in found),
        style=_PLAN_STYLE,
        has_marks=True,
        notes=tuple(
            f"planned, {point.concurrency} at a time: {x:,.0f} tokens/s, {p.value * _MS:,.4g} ms"
            for point, (x, p) in zip(planned.points, found, strict=True)
        ),
    )
    band = Band(
        name="planned, low to high",
        points=tuple((x, p.low * _MS, p.high * _MS) for x, p in found),
        style=_PLAN_STYLE,
    )
    return line, band


def distribution_charts(series: Sequence[Row]) -> Iterator[Markup]:
    """Yield how many answers were as quick, of each latency: cumulative distributions."""
    named = loads(series)
    for key, (title, label) in LATENCIES.items():
        lines, values = [], []
        least = _least(key, series)
        for style, (name, runs) in enumerate(named.items()):
            for repeat, run in enumerate(runs):
                points = tuple((max(x, least), y) for x, y in _distribution(run.get(key)))
                values += [x for x, _ in points]
                if points:
                    lines.append(
                        Line(
                            name="" if repeat else name,
                            points=points,
                            style=style,
                            has_marks=False,
                            notes=(),
                        )
                    )
        if lines:
            repeated = (
                " One line for each repeat." if any(map(_is_repeated, named.values())) else ""
            )
            yield line_chart(
                title,
                f"Share of {'gaps' if key == 'itl_s' else 'answers'} up to each time.{repeated}",
                x=axis(label, values, is_log=least > 0),
                y=axis("share, %", [0, 100], is_log=False),
                lines=lines,
                height=260,
                numbers=_percents(title, key, named),
            )


def _least(key: str, series: Sequence[Row]) -> float:
    """Return where an axis by logarithm begins; 0 where the values lie close to each other."""
    values = sorted(x for run in series for x, _ in _distribution(run.get(key)))
    middle = values[len(values) // 2] if values else 0.0
    return middle / _BELOW if values and values[-1] > _WIDE * middle > 0 else 0.0


def _is_repeated(runs: Sequence[Row]) -> bool:
    return len(runs) > 1


def _distribution(values: object) -> tuple[tuple[float, float], ...]:
    found = values if isinstance(values, Sequence) else ()
    return tuple(
        (value * _MS, share)
        for value, share in zip(found, QUANTILES, strict=False)
        if number(value) is not None
    )


def _percents(title: str, key: str, named: Mapping[str, Sequence[Row]]) -> Markup:
    heads = [Head("load", is_number=False), *(Head(f"p{p:g}") for p in _SHOWN_PERCENTS)]
    body = []
    for name, runs in named.items():
        for repeat, run in enumerate(runs):
            at = dict((share, x) for x, share in _distribution(run.get(key)))
            label = f"{name}, repeat {repeat + 1}" if len(runs) > 1 else name
            body.append([label, *(figure(at[p]) if p in at else NONE for p in _SHOWN_PERCENTS)])
    return table(f"{title}, ms", heads, body)


def timeline(series: Row) -> Iterator[Markup]:
    """Yield what happened when in one stage: tokens per second, requests in flight, TTFT."""
    bins, width_s = rows(series.get("bins")), number(series.get("bin_s")) or 1.0
    if len(bins) < 2:  # noqa: PLR2004  a line has two ends
        return
    middle = [(number(each.get("start_s")) or 0.0) + width_s / 2 for each in bins]
    across = axis("seconds from the first request", middle, is_log=False, from_zero=True)

    def drawn(label: str, title: str, said: str, *lines: Line) -> Markup:
        up = [y for line in lines for _, y in line.points]
        return line_chart(
            title, said, x=across, y=axis(label, up, is_log=False, from_zero=True), lines=lines,
            height=210,
        )  # fmt: skip

    def line(name: str, style: int, values: Sequence[float | None]) -> Line:
        points = tuple((x, y) for x, y in zip(middle, values, strict=True) if y is not None)
        return Line(name=name, points=points, style=style, has_marks=False, notes=())

    tokens = [(number(each.get("output_tokens")) or 0.0) / width_s for each in bins]
    yield drawn(
        "tokens/s",
        "Output tokens per second",
        "Tokens of an answer are spread evenly from its first to its last.",
        line("", 0, tokens),
    )
    flying = [number(each.get("in_flight")) or 0.0 for each in bins]
    failed = [float(count(each.get("failed"))) for each in bins]
    both = [line("in flight", 1, flying)]
    if any(failed):
        both.append(line("failed", 4, failed))
    yield drawn("requests", "Requests in flight", f"{fsum(failed):,.0f} failed.", *both)
    first = [number(each.get("ttft_p50_s")) for each in bins]
    if any(value is not None for value in first):
        ms = [None if value is None else value * _MS for value in first]
        yield drawn("TTFT, ms", "Time to first token", "Median of answers that began at a time.",
                    line("", 2, ms))  # fmt: skip


def gauge_charts(series: Row) -> Iterator[Markup]:
    """Yield what the server said of itself over time: running, waiting, cache."""
    samples = rows(series.get("samples"))
    if len(samples) < 2:  # noqa: PLR2004
        return
    times = [number(each.get("at_s")) or 0.0 for each in samples]
    across = axis("seconds from the first request", times, is_log=False, from_zero=True)

    def line(name: str, key: str, style: int, scale: float) -> Line:
        values = [(at, number(each.get(key))) for at, each in zip(times, samples, strict=True)]
        points = tuple((at, value * scale) for at, value in values if value is not None)
        return Line(name=name, points=points, style=style, has_marks=False, notes=())

    queue = [line("running", "running", 1, 1.0), line("waiting", "waiting", 4, 1.0)]
    cache = [line("", "cache_fraction", 3, 100.0)]
    for title, label, found in (
        ("Requests as the server counts them", "requests", queue),
        ("KV cache in use", "cache, %", cache),
    ):
        known = [each for each in found if each.points]
        up = [y for each in known for _, y in each.points]
        if known:
            yield line_chart(title, "Asked once a second.", x=across, lines=known, height=210,
                             y=axis(label, up, is_log=False, from_zero=True))  # fmt: skip


def mean_of(runs: Sequence[Row], *names: str) -> float | None:
    """Return the mean over repeats of a figure, None unless all have it."""
    values = []
    for run in runs:
        found: Any = run
        for name in names:
            found = mapping(found).get(name)
        value = number(found)
        if value is None:
            return None
        values.append(value)
    return fsum(values) / len(values) if values else None


def _is_wide(values: Sequence[float]) -> bool:
    positive = [value for value in values if value > 0]
    return len(positive) == len(values) and max(positive) > _WIDE * min(positive)


def details(name: str, blocks: Sequence[Markup], *, is_open: bool) -> Markup:
    """Return blocks that can be folded away."""
    return el("details", el("summary", name), el("div", *blocks, class_="grid"), open=is_open)
