"""US dollars per hour and per million tokens of a deployment that serves one mix of requests."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from k31ctl.core.estimate import Estimate
from k31ctl.core.figure import Assumption
from k31ctl.core.ownership import Ownership
from k31ctl.core.price_choice import ApiOffer, GpuHourPrice
from k31ctl.units import S_PER_HOUR, TOKENS_PER_M
from k31ctl.values import frozen

HOURS_PER_DAY: Final = 24
SENSITIVITY: Final = tuple(percent / 100 for percent in range(10, 101, 10))
_MOST_DRIFT: Final = 0.02


@frozen
class Mix:
    """Tokens of one average request; ``cached_fraction`` of the prompt is in the prefix cache."""

    prompt_tokens: float
    output_tokens: float
    cached_fraction: float

    def __post_init__(self) -> None:
        """State what cannot be true of a mix."""
        if not (
            self.prompt_tokens > 0 and self.output_tokens > 0 and 0 <= self.cached_fraction < 1
        ):
            raise ValueError("a mix has prompt and output tokens, and less than all of it cached")

    @property
    def cached_tokens(self) -> float:
        """Prompt tokens that are found in the prefix cache."""
        return self.prompt_tokens * self.cached_fraction

    @property
    def uncached_tokens(self) -> float:
        """Prompt tokens that prefill computes."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def total_tokens(self) -> float:
        """Tokens in and out of one request."""
        return self.prompt_tokens + self.output_tokens


@frozen
class Served:
    """What the whole deployment processes at full load, in tokens per second of each kind.

    ``num_gpus`` are those paid for. ``prefill_time_fraction`` is the share of machine time that
    prefill takes; decode has the rest.
    """

    num_gpus: int
    output_tok_s: Estimate
    uncached_input_tok_s: Estimate
    cached_input_tok_s: Estimate
    prefill_time_fraction: float

    def __post_init__(self) -> None:
        """State what cannot be true of a deployment that serves."""
        if self.num_gpus < 1 or not 0 <= self.prefill_time_fraction <= 1:
            raise ValueError("num_gpus is at least 1, prefill_time_fraction between 0 and 1")
        for rate in (self.output_tok_s, self.uncached_input_tok_s):
            if not 0 < rate.low <= rate.value <= rate.high:
                raise ValueError("rates must be above 0, and low, value and high in this order")

    @property
    def total_tok_s(self) -> Estimate:
        """Tokens of every kind, in and out."""
        return _weighted(
            (1, self.output_tok_s), (1, self.uncached_input_tok_s), (1, self.cached_input_tok_s)
        )


def served(
    *, num_gpus: int, requests_per_s: Estimate, mix: Mix, prefill_time_fraction: float
) -> Served:
    """What a deployment serves that completes this many requests of one mix in a second."""
    return Served(
        num_gpus=num_gpus,
        output_tok_s=requests_per_s.scaled(mix.output_tokens),
        uncached_input_tok_s=requests_per_s.scaled(mix.uncached_tokens),
        cached_input_tok_s=requests_per_s.scaled(mix.cached_tokens),
        prefill_time_fraction=prefill_time_fraction,
    )


@frozen
class TokenPrices:
    """What a million tokens of each kind cost at one utilisation, in US dollars.

    The first three share the hourly cost among them without rest. The fourth puts all of it on
    output, the last on every token alike.
    """

    input: Estimate
    cached_input: Estimate
    output: Estimate
    output_alone: Estimate
    total: Estimate


class Verdict(StrEnum):
    """Whether self-hosting can cost what the API costs."""

    REACHED = "reached"
    LOW_END = "reached-at-low-end"
    API_CHEAPER = "api-cheaper-at-full-load"


@frozen
class BreakEven:
    """Tokens a day, in and out, from which self-hosting costs less than the API.

    ``needed`` is that number whether or not the deployment can serve it; ``tokens_per_day`` and
    its ends are null where it cannot. ``utilisation`` is needed over capacity.
    """

    verdict: Verdict
    tokens_per_day: float | None
    tokens_per_day_low: float | None
    tokens_per_day_high: float | None
    needed_tokens_per_day: Estimate
    capacity_tokens_per_day: Estimate
    utilisation: Estimate


@frozen
class ApiCost:
    """What the same tokens cost from a seller: per million of the mix, and per hour of ours."""

    offer: ApiOffer
    usd_per_m_total_tokens: float
    usd_per_hour: Estimate


@frozen
class SensitivityRow:
    """Prices at one utilisation; ``api_ratio`` is our cost over the API's, for the same tokens."""

    utilisation: float
    tokens_per_day: Estimate
    prices: TokenPrices
    api_ratio: Estimate | None


@frozen
class Cost:
    """What a deployment costs, what its tokens cost, and how that compares."""

    price: GpuHourPrice
    num_gpus: int
    utilisation: float
    cached_input_weight: float
    mix: Mix
    usd_per_hour: Estimate
    prices: TokenPrices
    api: ApiCost | None
    break_even: BreakEven | None
    sensitivity: tuple[SensitivityRow, ...]
    ownership: Ownership | None
    assumptions: tuple[Assumption, ...]


def cost_of(
    served: Served,
    *,
    mix: Mix,
    utilisation: float,
    price: GpuHourPrice,
    cached_input_weight: float,
    offer: ApiOffer | None,
    ownership: Ownership | None,
    assumptions: tuple[Assumption, ...],
) -> Cost:
    """The cost of a deployment whose rates are those of ``mix``, busy for ``utilisation`` of time.

    Symbols: n GPUs, p $/GPU-hour. Formula: n * p an hour, whether busy or not.
    """
    if not 0 < utilisation <= 1:
        raise ValueError("utilisation must be above 0 and at most 1")
    if not _agree(served, mix):
        raise ValueError("the rates that are served are not those of the mix")
    usd_per_hour = price.usd.scaled(served.num_gpus)
    priced = _pricing(served, usd_per_hour=usd_per_hour, cached_input_weight=cached_input_weight)
    api = _api_cost(offer, served, mix=mix, utilisation=utilisation) if offer else None
    rows = tuple(_row(share, served, priced=priced, api=api) for share in SENSITIVITY)
    return Cost(
        price=price,
        num_gpus=served.num_gpus,
        utilisation=utilisation,
        cached_input_weight=cached_input_weight,
        mix=mix,
        usd_per_hour=usd_per_hour,
        prices=priced(utilisation),
        api=api,
        break_even=break_even(served, usd_per_hour=usd_per_hour, api=api) if api else None,
        sensitivity=rows,
        ownership=ownership,
        assumptions=assumptions,
    )


def token_prices(
    served: Served, *, usd_per_hour: Estimate, utilisation: float, cached_input_weight: float
) -> TokenPrices:
    """Prices per million tokens that add up to the hourly cost.

    Prefill time is paid by input and decode time by output. A cached token counts as ``w`` of an
    uncached one. Low ends pair the low cost with the high rates, high ends the reverse.

    Symbols: H $/hour, f share of prefill, u utilisation, N tokens an hour at full load by kind.
    Formula: input f H / (u (N_uncached + w N_cached)), cached input w times that,
    output (1 - f) H / (u N_output).
    """
    f, w = served.prefill_time_fraction, cached_input_weight
    weighed = _weighted((1, served.uncached_input_tok_s), (w, served.cached_input_tok_s))
    per_m = _per_m(usd_per_hour, utilisation)
    paid = per_m(weighed)
    output = per_m(served.output_tok_s)
    return TokenPrices(
        input=paid.scaled(f),
        cached_input=paid.scaled(f * w),
        output=output.scaled(1 - f),
        output_alone=output,
        total=per_m(served.total_tok_s),
    )


def api_usd_per_m_tokens(offer: ApiOffer, mix: Mix) -> float:
    """What a million tokens of the mix cost from a seller; no cached price means input's."""
    price = offer.price
    cached = price.usd_per_m_cached_input
    usd = (
        mix.uncached_tokens * price.usd_per_m_input
        + mix.cached_tokens * (price.usd_per_m_input if cached is None else cached)
        + mix.output_tokens * price.usd_per_m_output
    )
    return usd / mix.total_tokens


def break_even(served: Served, *, usd_per_hour: Estimate, api: ApiCost) -> BreakEven:
    """Where a deployment that costs the same at any load meets an API that is paid by the token.

    Symbols: H $/hour, a $/token of the mix from the API. Formula: 24 H / a tokens a day.
    """
    needed = usd_per_hour.scaled(HOURS_PER_DAY * TOKENS_PER_M / api.usd_per_m_total_tokens)
    capacity = served.total_tok_s.scaled(S_PER_HOUR * HOURS_PER_DAY)
    reached = {
        "value": needed.value <= capacity.value,
        "low": needed.low <= capacity.high,
        "high": needed.high <= capacity.low,
    }
    worst = Verdict.LOW_END if reached["low"] else Verdict.API_CHEAPER
    return BreakEven(
        verdict=Verdict.REACHED if reached["value"] else worst,
        tokens_per_day=needed.value if reached["value"] else None,
        tokens_per_day_low=needed.low if reached["low"] else None,
        tokens_per_day_high=needed.high if reached["high"] else None,
        needed_tokens_per_day=needed,
        capacity_tokens_per_day=capacity,
        utilisation=_over(needed, capacity),
    )


def _pricing(
    served: Served, *, usd_per_hour: Estimate, cached_input_weight: float
) -> Callable[[float], TokenPrices]:
    def priced(utilisation: float) -> TokenPrices:
        return token_prices(
            served,
            usd_per_hour=usd_per_hour,
            utilisation=utilisation,
            cached_input_weight=cached_input_weight,
        )

    return priced


def _api_cost(offer: ApiOffer, served: Served, *, mix: Mix, utilisation: float) -> ApiCost:
    per_m = api_usd_per_m_tokens(offer, mix)
    m_tokens_per_hour = served.total_tok_s.scaled(utilisation * S_PER_HOUR / TOKENS_PER_M)
    return ApiCost(
        offer=offer, usd_per_m_total_tokens=per_m, usd_per_hour=m_tokens_per_hour.scaled(per_m)
    )


def _row(
    utilisation: float,
    served: Served,
    *,
    priced: Callable[[float], TokenPrices],
    api: ApiCost | None,
) -> SensitivityRow:
    prices = priced(utilisation)
    return SensitivityRow(
        utilisation=utilisation,
        tokens_per_day=served.total_tok_s.scaled(utilisation * S_PER_HOUR * HOURS_PER_DAY),
        prices=prices,
        api_ratio=prices.total.scaled(1 / api.usd_per_m_total_tokens) if api else None,
    )


def _per_m(usd_per_hour: Estimate, utilisation: float) -> Callable[[Estimate], Estimate]:
    busy = S_PER_HOUR / TOKENS_PER_M * utilisation
    return lambda tok_s: _over(usd_per_hour, tok_s.scaled(busy))


def _over(above: Estimate, below: Estimate) -> Estimate:
    return Estimate(
        value=above.value / below.value, low=above.low / below.high, high=above.high / below.low
    )


def _weighted(*parts: tuple[float, Estimate]) -> Estimate:
    return Estimate(
        value=sum(w * part.value for w, part in parts),
        low=sum(w * part.low for w, part in parts),
        high=sum(w * part.high for w, part in parts),
    )


def _agree(served: Served, mix: Mix) -> bool:
    """Whether each request brings as many tokens of each kind as the mix says, within rounding."""
    requests_per_s = served.output_tok_s.value / mix.output_tokens
    kinds = (
        (served.uncached_input_tok_s, mix.uncached_tokens),
        (served.cached_input_tok_s, mix.cached_tokens),
    )
    return all(
        abs(rate.value / requests_per_s - tokens) <= 1 + _MOST_DRIFT * tokens
        for rate, tokens in kinds
    )
