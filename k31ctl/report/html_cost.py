"""What a deployment costs, and from how many tokens a day it beats an API."""

from k31ctl.report.html_elements import Head, Markup, chart, el, join, linked, missing, section
from k31ctl.report.html_elements import table as table_of
from k31ctl.report.html_read import Row, mapping, number, numbers, rows, text
from k31ctl.report.html_words import NONE, between, label, large, share, spread, usd

_COSTS = (
    ("usd_per_m_input_tokens", "a million input tokens", "input"),
    ("usd_per_m_cached_input_tokens", "a million cached input tokens", "cached_input"),
    ("usd_per_m_output_tokens", "a million output tokens", "output"),
)


def cost_section(document: Row) -> Markup:
    """Prices, costs per token, break-even, and two sliders that recompute them."""
    result = mapping(document.get("result"))
    cost = mapping(result.get("cost"))
    if not cost:
        said = "No cost: the document has no price for this hardware."
        return section("cost", "Cost and break-even", missing(said))
    blocks = [_said(cost), _table(cost), _sliders(cost, document), _by_load(result)]
    blocks += [_sensitivity(cost), _purchase(mapping(cost.get("purchase")))]
    return section("cost", "Cost and break-even", *blocks)


def cost_inputs(document: Row) -> dict[str, object] | None:
    """What the sliders recompute from; None where the document has no price or no result."""
    cost = mapping(mapping(document.get("result")).get("cost"))
    price = number(mapping(cost.get("price")).get("usd_per_gpu_hour"))
    if not price or number(cost.get("usd_per_m_output_tokens")) is None:
        return None
    return {
        "price": price,
        "utilisation": utilisation(cost),
        "api_output": number(mapping(cost.get("api")).get("output")),
        "api_name": text(mapping(cost.get("api")).get("name"), "API"),
        **numbers(cost, "usd_per_hour", "usd_per_m_output_tokens", "break_even_tokens_per_day"),
    }


def utilisation(cost: Row) -> float:
    """The share of a day in which the deployment is busy that the costs are worked out for."""
    inputs = mapping(cost.get("inputs"))
    return number(cost.get("utilisation")) or number(inputs.get("utilisation")) or 1.0


def _said(cost: Row) -> Markup:
    price, api = mapping(cost.get("price")), mapping(cost.get("api"))
    seen = spread(price.get("low"), price.get("high"), usd)
    range_ = f" (seen from {seen})" if seen else ""
    bought = [
        f"One GPU-hour at {usd(price.get('usd_per_gpu_hour'))}{range_}",
        text(price.get("provider")), text(price.get("term")), text(price.get("date")),
    ]  # fmt: skip
    lines = [
        ", ".join(part for part in bought if part) + ". ",
        linked(text(price.get("source"))),
        ". ",
    ]
    if api:
        lines += [f"Compared with {text(api.get('name'), 'an API')}, {text(api.get('date'))}: "]
        lines += [linked(text(api.get("source"))), "."]
    return el("p", *lines)


def _table(cost: Row) -> Markup:
    api = mapping(cost.get("api"))
    heads = (
        Head("US dollars for", is_number=False), Head("expected"), Head("range"),
        Head(text(api.get("name"), "API")),
    )  # fmt: skip
    body = [("an hour of the deployment", usd(cost.get("usd_per_hour")), NONE, NONE)]
    body += [
        (name, usd(cost.get(key)), between(cost, key, usd) or NONE, usd(api.get(at_api)))
        for key, name, at_api in _COSTS
    ]
    even = cost.get("break_even_tokens_per_day")
    range_ = between(cost, "break_even_tokens_per_day", large) or NONE
    body.append(("break-even, tokens a day", large(even), range_, NONE))
    at = share(utilisation(cost))
    return table_of(f"Cost when the deployment is busy {at} of the time", heads, body)


def _sliders(cost: Row, document: Row) -> Markup | None:
    if cost_inputs(document) is None:
        return None
    price = mapping(cost.get("price"))
    now = number(price.get("usd_per_gpu_hour")) or 1.0
    low, high = number(price.get("low")) or now, number(price.get("high")) or now
    percent = round(utilisation(cost) * 100)
    dear = _slider("price", "Price of a GPU-hour", now, low / 2, high * 1.5, 0.01, usd(now))
    busy = _slider("utilisation", "Busy share of the day", percent, 5, 100, 1, f"{percent} %")
    outcome = [
        _outcome("out-cost", "$ per million output tokens", usd(cost.get(_COSTS[2][0]))),
        _outcome("out-hour", "$ per hour", usd(cost.get("usd_per_hour"))),
        _outcome("out-even", "break-even, tokens a day",
                 large(cost.get("break_even_tokens_per_day"))),
    ]  # fmt: skip
    said = (
        "It falls as the busy share grows and rises with the price of a GPU-hour. The band is the "
        "range; the dashed line is the API's price."
    )
    return el(
        "div",
        el("h3", "If the price or the load is another"),
        el("form", dear, busy, hidden=True, class_="sliders"),
        el("dl", *outcome, class_="tiles", aria_live="polite", hidden=True),
        chart("utilisation", "Cost of a million output tokens by busy share", said),
        id="what-if",
    )


def _slider(
    name: str, said: str, value: float, least: float, most: float, step: float, shown: str
) -> Markup:
    return el(
        "p",
        el("label", said, for_=name),
        el("input", type="range", id=name, name=name, min=f"{least:.2f}", max=f"{most:.2f}",
           step=step, value=f"{value:.2f}"),
        el("output", shown, for_=name, id=f"{name}-shown"),
    )  # fmt: skip


def _outcome(name: str, said: str, value: str) -> Markup:
    return el("div", el("dt", said), el("dd", value, id=name))


def _by_load(result: Row) -> Markup | None:
    points = rows(result.get("curve"))
    if not any(number(row.get("usd_per_m_output_tokens")) is not None for row in points):
        return None
    said = "More requests at once make a token cheaper, until the cache or the arithmetic is full."
    return chart("cost-by-load", "Cost of a million output tokens by requests at once", said)


def _sensitivity(cost: Row) -> Markup | None:
    found = rows(cost.get("sensitivity"))
    if not found:
        return None
    heads = (
        Head("busy share of the day", is_number=False), Head("$/M output tokens"), Head("range"),
        Head("break-even, tokens a day"),
    )  # fmt: skip
    body = [
        (
            share(row.get("utilisation")),
            usd(row.get("usd_per_m_output_tokens")),
            between(row, "usd_per_m_output_tokens", usd) or NONE,
            large(row.get("break_even_tokens_per_day")),
        )
        for row in found
    ]
    return table_of("Cost by how busy the deployment is", heads, body)


def _purchase(purchase: Row) -> Markup | None:
    if not purchase:
        return None
    heads = (Head("buying instead of renting", is_number=False), Head("value"))
    body = [
        (label(str(key)), f"{number(value):,.6g}" if number(value) is not None else str(value))
        for key, value in sorted(purchase.items())
        if not isinstance(value, dict | list)
    ]
    return join([el("h3", "Buying"), table_of("What buying the hardware comes to", heads, body)])
