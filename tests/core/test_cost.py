"""What tokens and hours cost: laws of attribution, break-even, owning, choice of a price."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.catalog.prices import load_price_book
from k31ctl.core.cost import Cost, Mix, Served, Verdict, cost_of, served
from k31ctl.core.costing import CostRequest, Unpriced, costed
from k31ctl.core.estimate import Estimate
from k31ctl.core.figure import Basis
from k31ctl.core.hardware import Source
from k31ctl.core.ownership import Ownership, ownership_of
from k31ctl.core.price_choice import (
    ApiOffer,
    PriceBook,
    api_offer,
    given_price,
    rental_price,
)
from k31ctl.core.prices import ApiPrice, PriceList, Term, fixed
from k31ctl.errors import InputError, UsageError
from tests.core.deployments import STORE, node

SOURCE = Source(url="https://example.com", checked=date(2026, 11, 29))
BOOK: PriceBook = load_price_book(STORE)
MIX = Mix(prompt_tokens=6_000, output_tokens=1_000, cached_fraction=0.5)
NOTHING: dict[str, Any] = {
    "usd_per_gpu_hour": None,
    "provider": None,
    "term": None,
    "utilisation": None,
    "api": None,
    "purchase_usd": None,
    "staff_usd_per_year": None,
    "usd_per_kwh": None,
}
PRICES = st.floats(0.01, 100)
SHARES = st.floats(0.01, 1)
RATES = st.tuples(st.floats(0.01, 1e3), st.floats(0.5, 1), st.floats(1, 2)).map(
    lambda drawn: Estimate(value=drawn[0], low=drawn[0] * drawn[1], high=drawn[0] * drawn[2])
)
MIXES = st.builds(
    Mix,
    prompt_tokens=st.integers(1, 1_000_000),
    output_tokens=st.integers(1, 100_000),
    cached_fraction=st.floats(0, 0.99),
)


def even(value: float) -> Estimate:
    return Estimate(value=value, low=value, high=value)


def offer(*, usd_in: float, cached: float | None, out: float) -> ApiOffer:
    price = ApiPrice(
        model="m",
        usd_per_m_input=usd_in,
        usd_per_m_cached_input=cached,
        usd_per_m_output=out,
        basis=Basis.MEASURED,
        dated=date(2026, 11, 1),
        source=SOURCE,
    )
    return ApiOffer(name="seller", seller="Seller", first_party=False, price=price)


def cost(
    *,
    usd_per_gpu_hour: float = 5.0,
    utilisation: float = 0.5,
    requests_per_s: Estimate | None = None,
    mix: Mix = MIX,
    prefill: float = 0.25,
    weight: float = 0.1,
    api: ApiOffer | None = None,
) -> Cost:
    return cost_of(
        served(
            num_gpus=8,
            requests_per_s=requests_per_s or even(2.0),
            mix=mix,
            prefill_time_fraction=prefill,
        ),
        mix=mix,
        utilisation=utilisation,
        price=given_price(usd_per_gpu_hour),
        cached_input_weight=weight,
        offer=api,
        ownership=None,
        assumptions=(),
    )


def test_a_cost_worked_by_hand() -> None:
    found = cost()
    # 8 x 5 = 40 $/h; 2 requests/s at half load are 3,600 an hour:
    # 3.6 M output, 10.8 M uncached and 10.8 M cached input tokens
    assert found.usd_per_hour.value == 40
    assert found.prices.output.value == pytest.approx(0.75 * 40 / 3.6)
    assert found.prices.input.value == pytest.approx(0.25 * 40 / (10.8 + 1.08))
    assert found.prices.cached_input.value == pytest.approx(0.1 * 0.25 * 40 / (10.8 + 1.08))
    assert found.prices.output_alone.value == pytest.approx(40 / 3.6)
    assert found.prices.total.value == pytest.approx(40 / 25.2)


@given(RATES, MIXES, SHARES, st.floats(0, 1), st.floats(0, 1), PRICES)
def test_what_tokens_pay_adds_up_to_the_hour_at_every_end(
    rate: Estimate, mix: Mix, utilisation: float, prefill: float, weight: float, usd: float
) -> None:
    found = cost(
        usd_per_gpu_hour=usd,
        utilisation=utilisation,
        requests_per_s=rate,
        mix=mix,
        prefill=prefill,
        weight=weight,
    )
    prices = found.prices
    for end, requests_per_s in (("value", rate.value), ("low", rate.high), ("high", rate.low)):
        requests_m = requests_per_s * 3600 * utilisation / 1e6
        paid = requests_m * (
            mix.uncached_tokens * getattr(prices.input, end)
            + mix.cached_tokens * getattr(prices.cached_input, end)
            + mix.output_tokens * getattr(prices.output, end)
        )
        assert paid == pytest.approx(getattr(found.usd_per_hour, end), rel=1e-9)


@given(PRICES, st.floats(0.1, 10))
def test_every_price_scales_with_the_price_of_a_gpu_hour(usd: float, factor: float) -> None:
    api = offer(usd_in=2, cached=0.2, out=10)
    once = cost(usd_per_gpu_hour=usd, api=api)
    more = cost(usd_per_gpu_hour=usd * factor, api=api)
    for name in ("input", "cached_input", "output", "output_alone", "total"):
        before, after = getattr(once.prices, name), getattr(more.prices, name)
        assert after.value == pytest.approx(before.value * factor)
    assert once.break_even
    assert more.break_even
    assert more.break_even.needed_tokens_per_day.value == pytest.approx(
        once.break_even.needed_tokens_per_day.value * factor
    )


@given(SHARES, SHARES)
def test_a_busier_deployment_has_cheaper_tokens_and_the_same_hour(one: float, two: float) -> None:
    idle, busy = cost(utilisation=min(one, two)), cost(utilisation=max(one, two))
    assert busy.prices.output.value <= idle.prices.output.value
    assert busy.prices.input.value <= idle.prices.input.value
    assert busy.usd_per_hour == idle.usd_per_hour


@given(RATES, MIXES)
def test_low_expected_and_high_are_in_order(rate: Estimate, mix: Mix) -> None:
    found = cost(requests_per_s=rate, mix=mix, api=offer(usd_in=2, cached=None, out=10))
    assert found.break_even
    for each in (found.prices.input, found.prices.total, found.break_even.utilisation):
        assert each.low <= each.value * (1 + 1e-12)
        assert each.value <= each.high * (1 + 1e-12)


@given(st.floats(0.1, 10))
def test_break_even_is_inverse_to_the_price_of_the_api(factor: float) -> None:
    once = cost(api=offer(usd_in=2, cached=0.2, out=10)).break_even
    more = cost(api=offer(usd_in=2 * factor, cached=0.2 * factor, out=10 * factor)).break_even
    assert once
    assert more
    assert more.needed_tokens_per_day.value == pytest.approx(
        once.needed_tokens_per_day.value / factor
    )


def test_at_break_even_both_cost_the_same() -> None:
    api = offer(usd_in=2, cached=0.2, out=10)
    even_at = cost(api=api).break_even
    assert even_at
    found = cost(utilisation=even_at.utilisation.value, api=api)
    assert found.api
    assert found.prices.total.value == pytest.approx(found.api.usd_per_m_total_tokens)
    assert found.api.usd_per_hour.value == pytest.approx(found.usd_per_hour.value)


def test_break_even_worked_by_hand() -> None:
    found = cost(api=offer(usd_in=2, cached=0.2, out=10)).break_even
    # a request costs (3,000 x 2 + 3,000 x 0.2 + 1,000 x 10) / 1e6 = 0.0166 $; a day 960 $
    assert found
    assert found.verdict is Verdict.REACHED
    assert found.tokens_per_day == pytest.approx(960 / 0.0166 * 7_000)
    assert found.capacity_tokens_per_day.value == 2 * 86_400 * 7_000


def test_an_api_that_is_cheaper_at_full_load_has_no_break_even_and_says_so() -> None:
    found = cost(api=offer(usd_in=0.1, cached=0.01, out=0.5)).break_even
    assert found
    assert found.verdict is Verdict.API_CHEAPER
    assert found.tokens_per_day is found.tokens_per_day_low is found.tokens_per_day_high is None
    assert found.utilisation.value > 1


def test_a_break_even_that_only_the_fast_end_reaches_is_told_apart() -> None:
    rate = Estimate(value=1.0, low=0.5, high=2.0)
    # 40 $/h need 24 x 40 / 0.0166 / 86,400 = 0.67 requests/s; at 80 $/h 1.34
    found = cost(
        usd_per_gpu_hour=10, requests_per_s=rate, api=offer(usd_in=2, cached=0.2, out=10)
    ).break_even
    assert found
    assert found.verdict is Verdict.LOW_END
    assert found.tokens_per_day is None
    assert found.tokens_per_day_low is not None


def test_without_a_cached_price_the_api_charges_cached_tokens_as_input() -> None:
    found = cost(api=offer(usd_in=5, cached=None, out=25)).api
    assert found
    assert found.usd_per_m_total_tokens == pytest.approx((6_000 * 5 + 1_000 * 25) / 7_000)


def test_sensitivity_runs_from_ten_to_a_hundred_percent() -> None:
    rows = cost(api=offer(usd_in=2, cached=0.2, out=10)).sensitivity
    assert [row.utilisation for row in rows] == pytest.approx([n / 10 for n in range(1, 11)])
    assert rows[4].prices == cost().prices  # at one half
    assert rows[9].prices.total.value == pytest.approx(rows[0].prices.total.value / 10)


def test_rates_of_another_mix_are_refused() -> None:
    rates = served(num_gpus=8, requests_per_s=even(1), mix=MIX, prefill_time_fraction=0.5)
    with pytest.raises(ValueError, match="not those of the mix"):
        cost_of(
            rates,
            mix=replace(MIX, cached_fraction=0.1),
            utilisation=0.5,
            price=given_price(1),
            cached_input_weight=0.1,
            offer=None,
            ownership=None,
            assumptions=(),
        )


@pytest.mark.parametrize("utilisation", [0, -0.1, 1.01, float("nan")])
def test_utilisation_is_a_share_of_time(utilisation: float) -> None:
    with pytest.raises(ValueError, match="utilisation"):
        cost(utilisation=utilisation)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_deployment_that_serves_nothing_has_no_price(rate: float) -> None:
    with pytest.raises(ValueError, match="rates must be above 0"):
        Served(
            num_gpus=8,
            output_tok_s=even(rate),
            uncached_input_tok_s=even(1),
            cached_input_tok_s=even(0),
            prefill_time_fraction=0.5,
        )


def owned(*, staff: float = 0, usd: float = 560_000, nodes: int = 1) -> Ownership:
    b300 = node("8x-b300")
    assert b300.power_per_gpu
    return ownership_of(
        b300,
        num_nodes=nodes,
        power_watts_per_gpu=b300.power_per_gpu,
        usd_per_node=fixed(usd),
        given=True,
        owning=BOOK.owning,
        site=BOOK.site,
        staff_usd_per_year=staff,
        figures=(),
        modelled=(),
    )


def test_owning_one_node_of_eight_b300_worked_by_hand() -> None:
    found = owned()
    usd = {line.key: line.usd.value for line in found.lines}
    # 8 GPUs x 3 years x 8,760 h x 0.9 available
    gpu_hours = 8 * 3 * 8760 * 0.9
    assert usd["nodes"] == 560_000 * 3 / 4
    assert (usd["nodes"] + usd["network"]) / gpu_hours == pytest.approx(2.55, abs=0.005)
    assert usd["support"] / gpu_hours == pytest.approx(0.61, abs=0.005)
    assert usd["energy"] / gpu_hours == pytest.approx(2.3 * 0.8 * 0.08)
    # rent is due in every hour: 2.3 kW x 190 x 12 / 8,760 = 0.60, or 0.67 by available hour
    assert usd["colocation"] / (8 * 3 * 8760) == pytest.approx(0.60, abs=0.005)
    assert found.usd_per_gpu_hour.value == pytest.approx(3.9, rel=0.03)
    assert found.upfront_usd.value == pytest.approx(560_000 * 1.15)


@given(st.floats(1e3, 1e7), st.floats(0, 1e6), st.integers(1, 100))
def test_the_parts_of_owning_add_up_to_the_whole(usd: float, staff: float, nodes: int) -> None:
    found = owned(usd=usd, staff=staff, nodes=nodes)
    for end in ("value", "low", "high"):
        parts = sum(getattr(line.usd, end) for line in found.lines)
        assert parts == pytest.approx(getattr(found.three_year_usd, end))
    assert found.three_year_usd.low <= found.three_year_usd.value <= found.three_year_usd.high


def test_staff_is_counted_only_where_it_is_given() -> None:
    assert "staff" not in [line.key for line in owned().lines]
    more = owned(staff=100_000).three_year_usd.value - owned().three_year_usd.value
    assert more == pytest.approx(300_000)


def test_a_preset_spans_the_sellers_of_its_class() -> None:
    found = rental_price(BOOK, hardware="8x-b300", provider="neocloud", term=Term.ON_DEMAND)
    hyperstack = rental_price(BOOK, hardware="8x-b300", provider="hyperstack", term=Term.ON_DEMAND)
    runpod = rental_price(BOOK, hardware="8x-b300", provider="runpod", term=Term.ON_DEMAND)
    assert found
    assert hyperstack
    assert runpod
    assert found.usd.low <= hyperstack.usd.value < found.usd.value < runpod.usd.value
    assert found.usd.high == runpod.usd.value
    assert found.num_sources > 2


def test_a_commitment_is_a_share_of_the_price_on_demand() -> None:
    spot = rental_price(BOOK, hardware="4x-gb300", provider="neocloud", term=Term.SPOT)
    on_demand = rental_price(BOOK, hardware="4x-gb300", provider="neocloud", term=Term.ON_DEMAND)
    assert spot
    assert on_demand
    assert spot.usd.value == pytest.approx(0.45 * on_demand.usd.value)


def test_a_seller_without_such_a_gpu_has_no_price() -> None:
    assert rental_price(BOOK, hardware="8x-h20-3e", provider="aws", term=Term.ON_DEMAND) is None


@pytest.mark.parametrize("name", ["neoclouds", "moonshot", ""])
def test_an_unknown_provider_is_a_mistake_in_the_option(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        rental_price(BOOK, hardware="8x-b300", provider=name, term=Term.ON_DEMAND)
    assert caught.value.where == "--provider"


def test_the_maker_s_own_offer_counts_where_none_is_named() -> None:
    found = api_offer(BOOK, model="kimi-k3.1-pro", name=None)
    assert found
    assert found.name == "moonshot"


def test_the_maker_s_offer_counts_before_a_cheaper_one() -> None:
    cheap = offer(usd_in=0.1, cached=None, out=1).price
    cheaper = PriceList(id="a", name="A", apis=(replace(cheap, model="kimi-k3"),))
    found = api_offer(replace(BOOK, lists=(cheaper, *BOOK.lists)), model="kimi-k3", name=None)
    assert found
    assert found.name == "moonshot"


def test_a_variant_is_named_behind_its_seller() -> None:
    found = api_offer(BOOK, model="kimi-k3.1-pro", name="moonshot/highspeed")
    assert found
    assert found.price.variant == "highspeed"


def test_an_unknown_offer_is_answered_with_those_that_exist() -> None:
    with pytest.raises(UsageError) as caught:
        api_offer(BOOK, model="kimi-k3", name="moonshot/highspeed")
    assert caught.value.where == "--api"
    assert "moonshot" in caught.value.remedy


def test_a_model_that_nobody_sells_has_no_offer() -> None:
    assert api_offer(BOOK, model="no-such-model", name=None) is None


def asked(hardware: str = "8x-b300", model: str = "kimi-k3.1-pro", **said: Any) -> Cost | Unpriced:
    return costed(
        BOOK,
        CostRequest(**(NOTHING | said)),
        node=node(hardware),
        num_nodes=1,
        model=model,
        served=served(num_gpus=8, requests_per_s=even(2), mix=MIX, prefill_time_fraction=0.3),
        mix=MIX,
    )


def priced(hardware: str = "8x-b300", model: str = "kimi-k3.1-pro", **said: Any) -> Cost:
    found = asked(hardware, model, **said)
    assert isinstance(found, Cost)
    return found


def test_without_a_word_about_money_the_preset_and_the_maker_s_api_are_taken() -> None:
    found = priced()
    assert (found.price.provider, found.price.term) == ("neocloud", Term.ON_DEMAND)
    assert found.utilisation == BOOK.serving.utilisation
    assert found.api
    assert found.ownership
    assert "utilisation" in [each.id for each in found.assumptions]


def test_a_given_price_is_the_price() -> None:
    found = priced(usd_per_gpu_hour=3.0, utilisation=0.9)
    assert found.usd_per_hour == even(24.0)
    assert "utilisation" not in [each.id for each in found.assumptions]


def test_a_purchase_price_makes_the_gpu_hour_that_of_owned_nodes() -> None:
    found = priced(purchase_usd=560_000.0)
    assert found.ownership
    assert found.price.usd == found.ownership.usd_per_gpu_hour
    assert found.usd_per_hour.value == pytest.approx(8 * owned().usd_per_gpu_hour.value)


def test_cheaper_electricity_makes_owning_cheaper() -> None:
    cheap, dear = priced(provider="owned", usd_per_kwh=0.05), priced(provider="owned")
    assert cheap.usd_per_hour.value < dear.usd_per_hour.value


def test_the_community_s_figure_is_shown_and_not_calculated_with() -> None:
    found = priced().ownership
    assert found
    used, quoted = found.figures
    assert found.usd_per_node == used.usd
    assert (quoted.quoted, quoted.usd.low, quoted.usd.high) == (True, 550_000, 650_000)
    assert quoted.basis is Basis.ASSUMED


def test_hardware_without_a_price_says_how_to_give_one() -> None:
    found = asked("8x-h20-3e")
    assert isinstance(found, Unpriced)
    assert "--price" in found.remedy


@pytest.mark.parametrize(
    "said", [{"provider": "neocloud"}, {"term": Term.SPOT}, {"provider": "owned"}]
)
def test_a_price_that_was_asked_for_and_is_not_known_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        asked("8x-h20-3e", **said)


def test_owning_a_node_of_unknown_power_is_refused() -> None:
    with pytest.raises(InputError, match="power"):
        costed(
            BOOK,
            CostRequest(**(NOTHING | {"purchase_usd": 1e5})),
            node=replace(node("8x-b300"), power_per_gpu=None),
            num_nodes=1,
            model="kimi-k3",
            served=served(num_gpus=8, requests_per_s=even(2), mix=MIX, prefill_time_fraction=0.3),
            mix=MIX,
        )


def test_a_model_without_an_api_has_no_break_even() -> None:
    found = priced(model="kimi-linear-48b")
    assert (found.api, found.break_even) == (None, None)
    assert all(row.api_ratio is None for row in found.sensitivity)
