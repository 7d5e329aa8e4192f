"""A cost for a person at a terminal: prices, the API beside them, owning, other utilisations."""

from textwrap import wrap

from k31ctl.core.cost import ApiCost, BreakEven, Cost, Verdict
from k31ctl.core.costing import Unpriced
from k31ctl.core.estimate import Estimate
from k31ctl.core.figure import Basis
from k31ctl.core.ownership import Ownership
from k31ctl.core.price_choice import GpuHourPrice
from k31ctl.units import TOKENS_PER_M, percent

WIDTH = 80
LABEL_WIDTH = 41
NUMBER_WIDTH = 12
PART_WIDTH = 17
_CENTS_BELOW = 1_000
_MOST_WRITTEN_OUT = 1e8
_TENTH_OF_A_CENT = 0.001


def cost_text(cost: Cost | Unpriced) -> list[str]:
    """The whole section as lines of at most 80 columns, without the assumptions."""
    if isinstance(cost, Unpriced):
        return cost_summary(cost)
    lines = [*cost_summary(cost), "", *_sensitivity(cost)]
    return [*lines, "", *_owning(cost.ownership)] if cost.ownership else lines


def cost_summary(cost: Cost | Unpriced) -> list[str]:
    """Prices and the API beside them, for an answer that is about more than money."""
    if isinstance(cost, Unpriced):
        return _paragraph(f"no cost: {cost.what}; {cost.remedy}")
    return [*_prices(cost), "", *_comparison(cost)]


def _prices(cost: Cost) -> list[str]:
    found = cost.prices
    head = f"cost at {percent(cost.utilisation)} utilisation, US dollars"
    return [
        _head(head),
        _line(f"{cost.num_gpus} GPUs, an hour", cost.usd_per_hour),
        _line("a million input tokens", found.input),
        _line("a million cached input tokens", found.cached_input),
        _line("a million output tokens", found.output),
        _line("  if output bore all of it", found.output_alone),
        _line("a million tokens, in and out", found.total),
        *_paragraph(_said_of_price(cost.price)),
    ]


def _said_of_price(price: GpuHourPrice) -> str:
    usd = price.usd
    what = f"at ${usd.value:.2f} a GPU-hour"
    if price.dated is None and price.term is None:
        return f"{what}, " + ("as given" if price.provider == "given" else "of owned nodes")
    parts = [price.provider]
    if price.provider_class and price.provider_class != price.provider:
        parts.append(f"a {price.provider_class}")
    if price.term:
        parts.append(price.term)
    basis = "list price" if price.basis is Basis.MEASURED else price.basis
    said = f"{what}: {', '.join(parts)}, {price.dated} ({basis})"
    if usd.low == usd.high:
        return said
    spread = f"${usd.low:.2f} to ${usd.high:.2f}"
    if price.num_sources > 1:
        return f"{said}; the {price.num_sources} prices of this kind span {spread}"
    return f"{said}; {spread}"


def _comparison(cost: Cost) -> list[str]:
    if cost.api is None or cost.break_even is None:
        return _paragraph("no API sells this model in the price lists; nothing to compare with")
    api, found = cost.api, cost.break_even
    lines = _paragraph(_said_of_api(api))
    lines += [
        _line("the same tokens there, an hour", api.usd_per_hour),
        _line("a million of them, in and out", _sole(api.usd_per_m_total_tokens)),
        _line("break even, M tokens a day", _millions(found.needed_tokens_per_day)),
        _line("  utilisation that takes, %", found.utilisation.scaled(100)),
    ]
    return lines + _paragraph(_verdict(found))


def _said_of_api(api: ApiCost) -> str:
    price = api.offer.price
    cached = price.usd_per_m_cached_input
    part = "no cached price" if cached is None else f"{cached:.2f} cached"
    return (
        f"the API: {api.offer.seller}, {price.model} {price.variant}, "
        f"${price.usd_per_m_input:.2f} in, {part}, {price.usd_per_m_output:.2f} out, {price.dated}"
    )


def _verdict(found: BreakEven) -> str:
    capacity = f"{_number(found.capacity_tokens_per_day.value / TOKENS_PER_M)} M tokens a day"
    match found.verdict:
        case Verdict.REACHED:
            return f"self-hosting is cheaper above that; at full load this serves {capacity}"
        case Verdict.LOW_END:
            return (
                f"the API is cheaper: at full load this serves {capacity}, enough only if the "
                "price is low and the speed high"
            )
        case Verdict.API_CHEAPER:
            return f"the API is cheaper even at 100 % utilisation, {capacity}"


def _sensitivity(cost: Cost) -> list[str]:
    lines = [f"  {'utilisation':<13}{'M tokens/day':>14}{'input':>10}{'output':>10}{'all':>10}"]
    lines[0] += f"{'x API':>10}" if cost.api else ""
    for row in cost.sensitivity:
        tokens = row.tokens_per_day.value / TOKENS_PER_M
        prices = (row.prices.input, row.prices.output, row.prices.total)
        text = f"  {percent(row.utilisation):<13}{_number(tokens):>14}"
        text += "".join(f"{_number(price.value):>10}" for price in prices)
        lines.append(text + (f"{_number(row.api_ratio.value):>10}" if row.api_ratio else ""))
    return lines


def _owning(found: Ownership) -> list[str]:
    count = "one node" if found.num_nodes == 1 else f"{found.num_nodes} nodes"
    lines = [_head(f"owning {count} for three years, $1,000")]
    for line in found.lines:
        label = f"{line.label:<{PART_WIDTH}}{line.how}"
        shown = label if len(label) <= LABEL_WIDTH else line.label
        lines.append(_line(shown, _thousands(line.usd)))
    lines += [
        _line("all of it", _thousands(found.three_year_usd)),
        _line("paid on the first day", _thousands(found.upfront_usd)),
        _line("$ a GPU-hour", found.usd_per_gpu_hour),
    ]
    for figure in found.figures:
        usd = figure.usd
        what = "quoted, not used" if figure.quoted or found.given else "used"
        lines += _paragraph(
            f"a node at ${usd.low:,.0f} to ${usd.high:,.0f} ({what}; {figure.basis}, "
            f"{figure.dated}): {figure.source.says}"
        )
    for other in found.modelled:
        lines += _paragraph(
            f"a {other.owner} that owns them: ${other.usd_per_gpu_hour:.2f} a GPU-hour "
            f"({other.dated}), {other.source.says}"
        )
    return lines


def _head(text: str) -> str:
    ends = "".join(f"{end:>{NUMBER_WIDTH}}" for end in ("low", "expected", "high"))
    return f"  {text:<{LABEL_WIDTH}}{ends}"


def _line(label: str, found: Estimate) -> str:
    """A label and three numbers; one number where there is no range."""
    texts = ["", _number(found.value), ""]
    if found.low != found.high:
        texts[0], texts[2] = _number(found.low), _number(found.high)
    return (
        f"  {label:<{LABEL_WIDTH}}{''.join(f'{text:>{NUMBER_WIDTH}}' for text in texts)}".rstrip()
    )


def _number(value: float) -> str:
    """A number that keeps cents while they matter, and a tenth of a cent below a dollar."""
    if value >= _CENTS_BELOW:
        return f"{value:,.0f}" if value < _MOST_WRITTEN_OUT else f"{value:.2e}"
    if value >= 1 or value == 0:
        return f"{value:.2f}"
    return f"{value:.3f}" if value >= _TENTH_OF_A_CENT * 10 else f"{value:.2g}"


def _sole(value: float) -> Estimate:
    return Estimate(value=value, low=value, high=value)


def _millions(found: Estimate) -> Estimate:
    return found.scaled(1 / TOKENS_PER_M)


def _thousands(found: Estimate) -> Estimate:
    return found.scaled(1 / 1_000)


def _paragraph(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
