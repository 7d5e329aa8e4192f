"""How fast a deployment is, what limits it, and how that changes with the load."""

from typing import Final

from k31ctl.report.html_elements import Head, Markup, chart, el, join, linked, missing, section
from k31ctl.report.html_elements import table as table_of
from k31ctl.report.html_read import Row, count, mapping, number, numbers, rows, text
from k31ctl.report.html_words import (
    NONE,
    TIMES,
    between,
    bound,
    duration,
    figure,
    ranged,
    share,
    usd,
)
from k31ctl.units import counted

CURVE_KEYS: Final = ("ttft_s", "tpot_s", "output_tok_s", "tok_s_per_user", "total_tok_s_per_gpu")
CURVE_KEYS_OF_COST: Final = (*CURVE_KEYS, "usd_per_m_output_tokens")
_METRICS: Final = (
    ("ttft_s", "time to first token (TTFT)", duration, ""),
    ("tpot_s", "time per output token (TPOT)", duration, ""),
    ("itl_s", "gap between tokens (ITL)", duration, ""),
    ("e2e_s", "a whole request", duration, ""),
    ("tok_s_per_user", "output for one reader", figure, " tokens/s"),
    ("output_tok_s", "output of the deployment", figure, " tokens/s"),
    ("total_tok_s_per_gpu", "input and output, each GPU", figure, " tokens/s"),
    ("prefill_tok_s_per_gpu", "prefill, each GPU", figure, " tokens/s"),
)
_FIGURES: Final = (
    ("ttft", "Time to first token, in seconds"),
    ("tpot", "Time per output token, in milliseconds"),
    ("output", "Output of the deployment, in tokens per second"),
    ("user", "Output for one reader, in tokens per second"),
)


def speed_section(document: Row) -> Markup:
    """The numbers of one load, the curves over all loads, and the parts of a step."""
    result = mapping(document.get("result"))
    return section(
        "speed",
        "Speed",
        _summary(mapping(result.get("performance"))),
        _curves(rows(result.get("curve"))),
        _breakdown(rows(mapping(result.get("performance")).get("breakdown"))),
    )


def curve_points(result: Row) -> list[dict[str, object]]:
    """The points of the curves, with their ranges."""
    return [
        {"concurrency": number(row.get("concurrency")), "fits": row.get("fits") is not False}
        | numbers(row, *CURVE_KEYS_OF_COST)
        for row in rows(result.get("curve"))
    ]


def breakdown_parts(result: Row) -> list[dict[str, object]]:
    """The parts of a decode step and of a prefill, in seconds."""
    return [
        {key: text(row.get(key)) for key in ("phase", "part", "bound_by")}
        | numbers(row, "seconds", "limit_s")
        for row in rows(mapping(result.get("performance")).get("breakdown"))
    ]


def workload_words(workload: Row) -> str:
    """The load in words."""
    said = (
        f"{count(workload.get('prompt_tokens')):,} tokens in and "
        f"{count(workload.get('output_tokens')):,} out"
    )
    if number(workload.get("cached_fraction")):
        said += f", {share(workload.get('cached_fraction'))} of the prompt cached"
    if number(workload.get("concurrency")) is not None:
        return f"{counted(count(workload.get('concurrency')), 'request')} at once of {said}"
    return f"{figure(workload.get('rate_per_s'))} requests a second of {said}"


def _summary(performance: Row) -> Markup:
    if not performance:
        return missing("No speed: the document has no performance model for this deployment.")
    workload = workload_words(mapping(performance.get("workload")))
    heads = (Head("quantity", is_number=False), Head("expected"), Head("range"))
    body = [
        (name, form(performance.get(key)) + unit, between(performance, key, form) or NONE)
        for key, name, form, unit in _METRICS
        if number(performance.get(key)) is not None
    ]
    return join(
        [
            el("p", f"With {workload}, the limit is {bound(performance.get('bound_by'))}. ",
               "A range holds nine of ten published measurements of its kind."),
            table_of(f"Speed at {workload}", heads, body),
        ]
    )  # fmt: skip


def _curves(points: list[Row]) -> Markup:
    if not points:
        return missing("No curves: the document has one load only.")
    said = "The band is the range; hollow points hold more requests than the cache."
    figures = [chart(name, title, said if name == "ttft" else "") for name, title in _FIGURES]
    heads = (
        Head("requests at once", is_number=False), Head("TTFT"), Head("TPOT"),
        Head("output, tokens/s"), Head("one reader, tokens/s"), Head("$/M output"),
        Head("limited by", is_number=False), Head("cache", is_number=False),
    )  # fmt: skip
    body = [
        (
            f"{count(row.get('concurrency')):,}",
            ranged(row, "ttft_s", duration),
            ranged(row, "tpot_s", duration),
            ranged(row, "output_tok_s"),
            ranged(row, "tok_s_per_user"),
            ranged(row, "usd_per_m_output_tokens", usd),
            bound(row.get("bound_by")),
            "too small" if row.get("fits") is False else "fits",
        )
        for row in points
    ]
    numbers_of = table_of("Speed by requests at once: expected (low to high)", heads, body)
    behind = el("details", el("summary", "Numbers behind the curves"), numbers_of, open=True)
    return join([el("h3", "Speed by load"), el("div", *figures, class_="grid"), behind])


def _breakdown(parts: list[Row]) -> Markup:
    if not parts:
        return missing("No breakdown: the document does not say where the time goes.")
    heads = (
        Head("phase", is_number=False), Head("part", is_number=False), Head("time"),
        Head("share"), Head("limit"), Head("times the limit"),
        Head("limited by", is_number=False), Head("basis", is_number=False),
        Head("source", is_number=False),
    )  # fmt: skip
    body = [
        (
            text(row.get("phase")),
            text(row.get("part")),
            duration(row.get("seconds")),
            share(row.get("share")),
            duration(row.get("limit_s")),
            _distance(row),
            bound(row.get("bound_by")),
            text(row.get("basis")),
            linked(text(row.get("source"))),
        )
        for row in parts
    ]
    said = "A bar is the expected time; the mark in it is what the hardware's peak would allow."
    numbers_of = table_of("The parts of a decode step and of a prefill", heads, body)
    return join(
        [el("h3", "Where the time goes"), chart("breakdown", "Parts of a step", said, numbers_of)]
    )


def _distance(row: Row) -> str:
    seconds, limit = number(row.get("seconds")), number(row.get("limit_s"))
    return NONE if seconds is None or not limit else f"{seconds / limit:.2f} {TIMES}"
