"""The options about money, each checked where it is read."""

import math
from collections.abc import Callable
from typing import Annotated

import typer

from k31ctl.api.bounds import LEAST_USD, MOST_USD, MOST_USD_PER_HOUR, MOST_USD_PER_KWH
from k31ctl.core.prices import Term
from k31ctl.errors import UsageError


def _number(text: str) -> float:
    try:
        return float(text.removeprefix("$").replace("_", ""))
    except ValueError:
        return math.nan


def _amount(flag: str, *, most: float, example: str) -> Callable[[str], float]:
    """Return a reader of dollars for the option of this name, up to ``most``."""

    def parser(text: str) -> float:
        value = _number(text)
        if not LEAST_USD <= value <= most:
            raise UsageError(
                f"{text[:40]!r} is not an amount from {LEAST_USD:f} to {most:,.0f} US dollars",
                where=flag,
                remedy=f"write a number such as {example}",
            )
        return value

    return parser


def _utilisation(text: str) -> float:
    percent = text.endswith("%")
    value = _number(text.removesuffix("%")) / (100 if percent else 1)
    if not 0 < value <= 1:
        raise UsageError(
            f"{text[:40]!r} is not a share of time above 0 and at most 1",
            where="--utilisation",
            remedy="write a number such as 0.6, or 60%",
        )
    return value


def _term(text: str) -> Term:
    try:
        return Term(text)
    except ValueError:
        raise UsageError(
            f"{text[:40]!r} is not a term of rental",
            where="--term",
            remedy=f"use one of {', '.join(Term)}",
        ) from None


PriceOpt = Annotated[
    float | None,
    typer.Option(
        "--price",
        metavar="USD_PER_GPU_HOUR",
        parser=_amount("--price", most=MOST_USD_PER_HOUR, example="7.40"),
        help="What a GPU costs you for an hour.",
        rich_help_panel="Money",
    ),
]
ProviderOpt = Annotated[
    str | None,
    typer.Option(
        "--provider",
        metavar="CLASS_OR_PROVIDER",
        help="marketplace, neocloud, hyperscaler, owned, or a seller's price list.",
        rich_help_panel="Money",
    ),
]
TermOpt = Annotated[
    Term | None,
    typer.Option(
        "--term",
        metavar="TERM",
        parser=_term,
        help="on-demand, 1-year, 3-year or spot.",
        rich_help_panel="Money",
    ),
]
UtilisationOpt = Annotated[
    float | None,
    typer.Option(
        "--utilisation",
        metavar="SHARE",
        parser=_utilisation,
        help="Share of time under full load, such as 0.6.",
        rich_help_panel="Money",
    ),
]
ApiOpt = Annotated[
    str | None,
    typer.Option(
        "--api",
        metavar="NAME",
        help="Whose API to compare with: SELLER or SELLER/VARIANT.",
        rich_help_panel="Money",
    ),
]
PurchaseOpt = Annotated[
    float | None,
    typer.Option(
        "--purchase",
        metavar="USD",
        parser=_amount("--purchase", most=MOST_USD, example="560000"),
        help="What one node costs you to buy.",
        rich_help_panel="Money",
    ),
]
StaffOpt = Annotated[
    float | None,
    typer.Option(
        "--staff",
        metavar="USD_PER_YEAR",
        parser=_amount("--staff", most=MOST_USD, example="180000"),
        help="What people for owned nodes cost you a year.",
        rich_help_panel="Money",
    ),
]
ElectricityOpt = Annotated[
    float | None,
    typer.Option(
        "--electricity",
        metavar="USD_PER_KWH",
        parser=_amount("--electricity", most=MOST_USD_PER_KWH, example="0.08"),
        help="What electricity for owned nodes costs you.",
        rich_help_panel="Money",
    ),
]
