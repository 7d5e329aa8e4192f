"""The deployments compared, and how long the chosen one takes to start."""

from typing import Final

from k31ctl.report.html_elements import Head, Markup, chart, el, linked, missing, section, table
from k31ctl.report.html_read import Row, count, mapping, number, numbers, rows, text
from k31ctl.report.html_words import NONE, TIMES, between, duration, figure, spread, usd

_NUMBERS: Final = (
    "concurrency", "output_tok_s", "total_tok_s_per_gpu", "tok_s_per_user", "ttft_s", "tpot_s",
    "usd_per_hour", "usd_per_m_output_tokens",
)  # fmt: skip
_SAME: Final = ("hardware", "nodes", "engine", "layout", "kv_dtype", "concurrency")


def options_section(document: Row) -> Markup:
    """Every candidate, the ones that no other beats, and what to pick for which goal."""
    result = mapping(document.get("result"))
    found = candidates(result)
    if not found:
        said = "No comparison: the document is about one deployment only."
        return section("options", "Options compared", missing(said))
    said = (
        "Up and right is better; the line joins the options that no other beats; hollow points "
        "miss the service levels asked for."
    )
    title = "Throughput of a GPU against speed for one reader"
    return section(
        "options",
        "Options compared",
        _recommendations(rows(result.get("recommendations")), result),
        chart("pareto", title, said, _table(found)),
    )


def cold_start_section(document: Row) -> Markup:
    """The steps from an empty disk to the first token."""
    start = mapping(mapping(document.get("result")).get("cold_start"))
    title = "Time to first token from an empty disk"
    if not start:
        said = "No start-up time: the document does not model downloading, loading and compiling."
        return section("start", title, missing(said))
    heads = (
        Head("step", is_number=False), Head("expected"), Head("range"),
        Head("source", is_number=False),
    )  # fmt: skip
    body: list[tuple[object, ...]] = [
        (
            text(row.get("part")),
            duration(row.get("seconds")),
            spread(row.get("low"), row.get("high"), duration) or NONE,
            linked(text(row.get("source"))),
        )
        for row in rows(start.get("parts"))
    ]
    body.append(
        (
            "together",
            duration(start.get("total_s")),
            between(start, "total_s", duration) or NONE,
            "",
        )
    )
    numbers_of = table("Steps of a first start", heads, body)
    total = duration(start.get("total_s"))
    said = f"The first start takes {total}; later ones skip the download."
    return section("start", title, chart("start", "Steps of a first start", said, numbers_of))


def candidates(result: Row) -> list[dict[str, object]]:
    """The candidates for the chart, each with whether it is on the frontier."""
    found = rows(result.get("candidates"))
    best = _frontier(result, found)
    return [
        {key: _plain(row.get(key)) for key in _SAME}
        | numbers(row, *_NUMBERS)
        | {"name": row_words(row), "meets_slo": row.get("meets_slo") is not False,
           "slo": _slo(row.get("meets_slo")),
           "pareto": n in best}
        for n, row in enumerate(found)
    ]  # fmt: skip


def start_parts(result: Row) -> list[dict[str, object]]:
    """The steps of a start for the chart."""
    return [
        {"part": text(row.get("part")), "seconds": number(row.get("seconds"))}
        for row in rows(mapping(result.get("cold_start")).get("parts"))
    ]


def row_words(row: Row) -> str:
    """A candidate in words."""
    layout = row.get("layout")
    parts = [
        f"{count(row.get('nodes')) or 1} {TIMES} {text(row.get('hardware'), NONE)}",
        text(row.get("engine")),
        text(mapping(layout).get("text")) if isinstance(layout, dict) else text(layout),
        text(row.get("kv_dtype")),
    ]
    return ", ".join(part for part in parts if part)


def _slo(meets: object) -> str:
    return NONE if not isinstance(meets, bool) else "met" if meets else "missed"


def _plain(value: object) -> object:
    return text(mapping(value).get("text")) if isinstance(value, dict) else value


def _frontier(result: Row, found: list[Row]) -> set[int]:
    given = result.get("pareto")
    entries = given if isinstance(given, list) else []
    best = {entry for entry in entries if isinstance(entry, int)}
    same = [tuple(row.get(key) for key in _SAME) for row in rows(given)]
    return best | {n for n, row in enumerate(found) if tuple(row.get(k) for k in _SAME) in same}


def _recommendations(found: list[Row], result: Row) -> Markup | None:
    if not found:
        return None
    entries = [
        el(
            "li",
            el("strong", text(row.get("goal"))),
            el("span", _chosen(row.get("row"), result)),
            el("span", text(row.get("because")), class_="because"),
        )
        for row in found
    ]
    return el("ul", *entries, class_="picks")


def _chosen(row: object, result: Row) -> str:
    listed = rows(result.get("candidates"))
    if isinstance(row, int) and 0 <= row < len(listed):
        return f"{row_words(listed[row])}, {count(listed[row].get('concurrency')):,} at once"
    return f"{row_words(mapping(row))}, {count(mapping(row).get('concurrency')):,} at once"


def _table(found: list[dict[str, object]]) -> Markup:
    heads = (
        Head("deployment", is_number=False), Head("at once"), Head("tokens/s per GPU"),
        Head("one reader, tokens/s"), Head("TTFT"), Head("TPOT"), Head("$/hour"),
        Head("$/M output"), Head("unbeaten", is_number=False), Head("SLO", is_number=False),
    )  # fmt: skip
    body = [
        (
            row["name"],
            figure(row.get("concurrency")),
            figure(row.get("total_tok_s_per_gpu")),
            figure(row.get("tok_s_per_user")),
            duration(row.get("ttft_s")),
            duration(row.get("tpot_s")),
            usd(row.get("usd_per_hour")),
            usd(row.get("usd_per_m_output_tokens")),
            "yes" if row["pareto"] else "no",
            row["slo"],
        )
        for row in found
    ]
    return table("All options", heads, body)
