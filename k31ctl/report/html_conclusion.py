"""The answer at the top of the page: in words, in the numbers that decide, and what is unknown."""

import re
from typing import Final

from k31ctl.report.html_elements import Markup, el, join, section
from k31ctl.report.html_read import Row, count, mapping, number, rows, text
from k31ctl.report.html_speed import workload_words
from k31ctl.report.html_words import (
    TIMES,
    between,
    bound,
    duration,
    figure,
    gib,
    large,
    usd,
)
from k31ctl.report.plan_text import tokens
from k31ctl.units import counted

USUAL_CONTEXT: Final = 131_072
_UNMEASURED: Final = re.compile(
    r"\bno (public |published )?(measurement|benchmark)|\b(never|not) (been )?measured",
    re.IGNORECASE,
)
_UNKNOWN: Final = re.compile(
    r"\bno (public|published)\b|\bno [^;.]{1,60} is public\b", re.IGNORECASE
)


def conclusion_section(document: Row) -> Markup:
    """What the plan comes to, in words that need no other part of the page."""
    result = mapping(document.get("result"))
    said = [
        f"{_place(document)} {_room(result)}".strip(),
        _pace(result),
        f"{_price(result)} {_start(result)}".strip(),
    ]
    return section(
        "conclusion",
        "Conclusion",
        el("div", *(el("p", line) for line in said if line), class_="lead"),
        _ways_out(result),
        _tiles(result),
        notice(document),
    )


def verdict(result: Row) -> tuple[str, str]:
    """The verdict in a few words, and its kind: good, part or bad."""
    cases = rows(result.get("sweep"))
    holding = sum(bool(row.get("fits")) for row in cases)
    if result.get("fits"):
        return "Fits", "good"
    if holding:
        return f"Fits in {holding} of {len(cases)} cases", "part"
    return "Does not fit", "bad"


def deployment(document: Row) -> str:
    """The deployment in words: how many of which node."""
    result, inputs = mapping(document.get("result")), mapping(document.get("inputs"))
    nodes = count(mapping(result.get("layout")).get("nodes")) or 1
    return f"{'one' if nodes == 1 else f'{nodes} {TIMES}'} {text(inputs.get('hardware'), 'node')}"


def model_name(document: Row) -> str:
    """The model as people write it; its profile where an older document has no more."""
    inputs = mapping(document.get("inputs"))
    return text(inputs.get("model_name")) or text(inputs.get("model"), "The model")


def notice(document: Row) -> Markup | None:
    """What was never measured, and every warning of the document."""
    warned = document.get("warnings")
    warnings = [str(line) for line in warned] if isinstance(warned, list) else []
    believed = [text(row.get("text")) for row in rows(document.get("assumptions"))]
    unknown = [line for line in believed if _UNMEASURED.search(line) or _UNKNOWN.search(line)]
    lines = [*unknown, *warnings]
    if not lines:
        return None
    title = "Before you rely on this"
    if any(_UNMEASURED.search(line) for line in lines):
        title = "Modelled, not measured"
    elif unknown:
        title = "Not confirmed by anything public"
    entries = el("ul", *(el("li", line) for line in lines))
    return el(
        "aside", el("h3", title, id="notice"), entries, class_="notice", aria_labelledby="notice"
    )


def _place(document: Row) -> str:
    result, inputs = mapping(document.get("result")), mapping(document.get("inputs"))
    layout, engine = mapping(result.get("layout")), mapping(result.get("engine"))
    gpus = counted(count(inputs.get("gpus")) or count(layout.get("num_gpus")), "GPU")
    where = (
        f"on {deployment(document)} ({gpus}, {text(layout.get('text'))}, "
        f"{text(engine.get('name'))})"
    )
    model = model_name(document)
    words, kind = verdict(result)
    if kind == "bad":
        return f"{model} does not fit {where}: {_shortage(result)}."
    pool = gib(mapping(result.get("capacity")).get("pool_bytes"))
    asked = "" if kind == "good" else f" in{words.removeprefix('Fits in')} asked for"
    return f"{model} fits {where}{asked}; {pool} GiB of each GPU hold the cache."


def _shortage(result: Row) -> str:
    per_gpu = mapping(mapping(result.get("memory")).get("per_gpu"))
    free = count(per_gpu.get("free_bytes"))
    if free < 0:
        return f"{gib(-free)} GiB are missing on each GPU"
    return "the cache is too small for what was asked"


def _room(result: Row) -> str:
    cases = [row for row in rows(result.get("sweep")) if row.get("fits")]
    steps = cases or [
        row for row in rows(result.get("concurrency")) if count(row.get("max_requests"))
    ]
    if not steps:
        return ""
    middle = max(steps, key=_near_usual)
    length, most = count(middle.get("context_tokens")), count(middle.get("max_requests"))
    return (
        f"At {tokens(length)} tokens of context it holds {counted(most, 'request')} at once; one "
        f"request may reach {tokens(count(result.get('longest_context_tokens')))} tokens."
    )


def _near_usual(row: Row) -> int:
    """How close a context comes to the usual one from below; the longer ones come last."""
    context = count(row.get("context_tokens"))
    return context if context <= USUAL_CONTEXT else -context


def _pace(result: Row) -> str:
    found = mapping(result.get("performance"))
    if not found:
        return ""
    loads = len(rows(result.get("sweep")))
    which = f", the first of the {loads} loads asked for" if loads > 1 else ""
    return (
        f"With {workload_words(mapping(found.get('workload')))}{which}, a reader waits "
        f"{duration(found.get('ttft_s'))} for the first token and then sees "
        f"{figure(found.get('tok_s_per_user'))} tokens a second; the deployment writes "
        f"{figure(found.get('output_tok_s'))} tokens a second in all, limited by "
        f"{bound(found.get('bound_by'))}."
    )


def _price(result: Row) -> str:
    cost = mapping(result.get("cost"))
    if not cost:
        return ""
    said = f"It costs {usd(cost.get('usd_per_hour'))} an hour"
    if number(cost.get("usd_per_m_output_tokens")) is not None:
        range_ = between(cost, "usd_per_m_output_tokens", usd)
        token = usd(cost.get("usd_per_m_output_tokens"))
        said += f" and, with that load, {token} for a million output tokens"
        said += f" ({range_})" if range_ else ""
    even = number(cost.get("break_even_tokens_per_day"))
    api = text(mapping(cost.get("api")).get("name"), "the API")
    return said + (
        "." if even is None else f", and costs less than {api} from {large(even)} tokens a day."
    )


def _start(result: Row) -> str:
    total = number(mapping(result.get("cold_start")).get("total_s"))
    return "" if total is None else f"From an empty disk it answers after {duration(total)}."


def _ways_out(result: Row) -> Markup | None:
    remedies = result.get("remedies")
    if not isinstance(remedies, list) or not remedies:
        return None
    entries = el("ul", *(el("li", str(line)) for line in remedies))
    return join([el("p", "Ways to hold more:", class_="tight"), entries])


def _tiles(result: Row) -> Markup:
    speed, cost = mapping(result.get("performance")), mapping(result.get("cost"))
    capacity = mapping(result.get("capacity"))
    tiles = [
        ("tokens in the cache", large(capacity.get("kv_cache_tokens")), ""),
        ("longest request", tokens(count(result.get("longest_context_tokens"))), "tokens"),
    ]
    for row, key, name, form, unit in (
        (speed, "ttft_s", "time to first token", duration, ""),
        (speed, "tok_s_per_user", "output for one reader", figure, "tokens/s"),
        (speed, "total_tok_s_per_gpu", "each GPU, in and out", figure, "tokens/s"),
        (cost, "usd_per_m_output_tokens", "for a million output tokens", usd, ""),
        (cost, "break_even_tokens_per_day", "break-even a day", large, "tokens"),
    ):
        if number(row.get(key)) is not None:
            tiles.append((name, form(row.get(key)), f"{between(row, key, form)} {unit}".strip()))
    shown = [
        el("div", el("dt", name), el("dd", value, el("small", more) if more else None))
        for name, value, more in tiles
    ]
    return el("dl", *shown, class_="tiles")
