"""A cost as plain numbers under the names that others rely on, low and high beside each."""

from typing import Any

from k31ctl.core.cost import ApiCost, BreakEven, Cost, SensitivityRow, TokenPrices
from k31ctl.core.estimate import Estimate
from k31ctl.core.ownership import Ownership
from k31ctl.core.price_choice import GpuHourPrice


def cost_document(cost: Cost) -> dict[str, Any]:
    """The cost by its names, in US dollars; null where there is no such number."""
    return {
        **_spread("usd_per_hour", cost.usd_per_hour),
        **_prices(cost.prices),
        "break_even_tokens_per_day": None,
        "break_even_tokens_per_day_low": None,
        "break_even_tokens_per_day_high": None,
        **_break_even_numbers(cost.break_even),
        "break_even": _break_even(cost.break_even),
        "price": _price(cost.price),
        "num_gpus": cost.num_gpus,
        "utilisation": cost.utilisation,
        "cached_input_weight": cost.cached_input_weight,
        "mix": cost.mix,
        "api": _api(cost.api),
        "purchase": _purchase(cost.ownership),
        "sensitivity": [_row(row) for row in cost.sensitivity],
        "assumptions": cost.assumptions,
    }


def _spread(name: str, found: Estimate) -> dict[str, float]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def _prices(prices: TokenPrices) -> dict[str, float]:
    return {
        **_spread("usd_per_m_input_tokens", prices.input),
        **_spread("usd_per_m_cached_input_tokens", prices.cached_input),
        **_spread("usd_per_m_output_tokens", prices.output),
        **_spread("usd_per_m_output_tokens_alone", prices.output_alone),
        **_spread("usd_per_m_total_tokens", prices.total),
    }


def _break_even_numbers(found: BreakEven | None) -> dict[str, float | None]:
    if found is None:
        return {}
    return {
        "break_even_tokens_per_day": found.tokens_per_day,
        "break_even_tokens_per_day_low": found.tokens_per_day_low,
        "break_even_tokens_per_day_high": found.tokens_per_day_high,
    }


def _break_even(found: BreakEven | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "verdict": found.verdict,
        **_spread("needed_tokens_per_day", found.needed_tokens_per_day),
        **_spread("capacity_tokens_per_day", found.capacity_tokens_per_day),
        **_spread("utilisation", found.utilisation),
    }


def _price(price: GpuHourPrice) -> dict[str, Any]:
    return {
        **_spread("usd_per_gpu_hour", price.usd),
        "provider": price.provider,
        "provider_class": price.provider_class,
        "term": price.term,
        "dated": price.dated,
        "basis": price.basis,
        "source": price.source,
        "num_sources": price.num_sources,
    }


def _api(api: ApiCost | None) -> dict[str, Any] | None:
    if api is None:
        return None
    price = api.offer.price
    return {
        "name": api.offer.name,
        "seller": api.offer.seller,
        "model": price.model,
        "variant": price.variant,
        "usd_per_m_input_tokens": price.usd_per_m_input,
        "usd_per_m_cached_input_tokens": price.usd_per_m_cached_input,
        "usd_per_m_output_tokens": price.usd_per_m_output,
        "usd_per_m_total_tokens": api.usd_per_m_total_tokens,
        **_spread("usd_per_hour", api.usd_per_hour),
        "dated": price.dated,
        "basis": price.basis,
        "source": price.source,
    }


def _purchase(found: Ownership | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "num_nodes": found.num_nodes,
        "num_gpus": found.num_gpus,
        "given": found.given,
        **_spread("usd_per_node", found.usd_per_node.estimate),
        **_spread("upfront_usd", found.upfront_usd),
        **_spread("three_year_usd", found.three_year_usd),
        **_spread("usd_per_gpu_hour", found.usd_per_gpu_hour),
        "lines": [
            {"key": line.key, "label": line.label, "how": line.how, **_spread("usd", line.usd)}
            for line in found.lines
        ],
        "figures": found.figures,
        "modelled": found.modelled,
    }


def _row(row: SensitivityRow) -> dict[str, Any]:
    ratio = row.api_ratio
    return {
        "utilisation": row.utilisation,
        **_spread("tokens_per_day", row.tokens_per_day),
        **_prices(row.prices),
        "api_ratio": ratio.value if ratio else None,
        "api_ratio_low": ratio.low if ratio else None,
        "api_ratio_high": ratio.high if ratio else None,
    }
