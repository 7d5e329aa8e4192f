"""The options about money: what they take, and how they refuse the rest."""

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from k31ctl.api.plan_request import cost_request
from k31ctl.cli import cost_options as opt
from k31ctl.core.costing import CostRequest
from k31ctl.core.prices import Term
from k31ctl.errors import UsageError

app = typer.Typer()
FOUND: list[CostRequest] = []


@app.command()
def ask(
    price: opt.PriceOpt = None,
    provider: opt.ProviderOpt = None,
    term: opt.TermOpt = None,
    utilisation: opt.UtilisationOpt = None,
    api: opt.ApiOpt = None,
    purchase: opt.PurchaseOpt = None,
    staff: opt.StaffOpt = None,
    electricity: opt.ElectricityOpt = None,
) -> None:
    FOUND.append(
        cost_request(
            price=price,
            provider=provider,
            term=term,
            utilisation=utilisation,
            api=api,
            purchase=purchase,
            staff=staff,
            electricity=electricity,
        )
    )


def request(*arguments: str) -> CostRequest:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return FOUND.pop()


@pytest.mark.parametrize("flag", ["--price", "--purchase", "--staff", "--electricity"])
@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e300", "free", ""])
def test_an_amount_that_is_none_is_refused_by_the_name_of_its_option(flag: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        request(f"{flag}={text}")
    assert caught.value.where == flag


@pytest.mark.parametrize("text", ["0", "-0.5", "1.01", "60", "nan", "101%", "busy"])
def test_a_utilisation_that_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        request(f"--utilisation={text}")
    assert caught.value.where == "--utilisation"


@pytest.mark.parametrize("text", ["0.6", "60%"])
def test_a_utilisation_is_a_share_or_a_percentage(text: str) -> None:
    assert request("--utilisation", text).utilisation == pytest.approx(0.6)


def test_what_is_said_arrives_and_the_rest_is_left_open() -> None:
    found = request("--provider", "neocloud", "--term", "3-year", "--api", "moonshot")
    assert (found.provider, found.term, found.api) == ("neocloud", Term.THREE_YEAR, "moonshot")
    assert found.usd_per_gpu_hour is found.purchase_usd is found.utilisation is None


def test_an_unknown_term_is_answered_with_the_terms() -> None:
    with pytest.raises(UsageError) as caught:
        request("--term", "monthly")
    assert caught.value.remedy == "use one of on-demand, 1-year, 3-year, spot"


PAIRS: list[dict[str, Any]] = [
    {"--price": "3", "--provider": "aws"},
    {"--price": "3", "--term": "spot"},
    {"--purchase": "3", "--provider": "aws"},
    {"--purchase": "3", "--term": "spot"},
    {"--provider": "owned", "--term": "spot"},
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_two_options_that_set_one_price_are_refused_together(pair: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="each set the price"):
        request(*[word for entry in pair.items() for word in entry])


def test_owned_nodes_may_have_a_price_of_their_own() -> None:
    found = request("--provider", "owned", "--purchase", "5e5", "--electricity", "0.05")
    assert (found.purchase_usd, found.usd_per_kwh) == (500_000, 0.05)
