"""Which of the catalog's prices counts for a deployment, and how far its sources are apart."""

import difflib
from datetime import date

from k31ctl.core.estimate import Estimate
from k31ctl.core.figure import Basis
from k31ctl.core.prices import (
    ApiPrice,
    ModelledPrice,
    Owning,
    PriceList,
    ProviderClass,
    Purchase,
    Rental,
    Serving,
    Site,
    Term,
)
from k31ctl.errors import UsageError
from k31ctl.values import frozen


@frozen
class GpuHourPrice:
    """What one GPU costs for an hour, in US dollars, and who says so.

    ``num_sources`` entries span low to high. ``dated`` is null for a price that was given or
    that follows from owning.
    """

    usd: Estimate
    provider: str
    provider_class: ProviderClass | None
    term: Term | None
    dated: date | None
    basis: Basis
    source: str
    num_sources: int = 1


@frozen
class ApiOffer:
    """A price of tokens and who asks it; ``name`` is what ``--api`` takes.

    ``first_party`` says that the seller made the model.
    """

    name: str
    seller: str
    first_party: bool
    price: ApiPrice


@frozen
class PriceBook:
    """Every price list, in the order of the ids, with what owning and serving take."""

    lists: tuple[PriceList, ...]
    owning: Owning
    site: Site
    serving: Serving

    def purchases(self, hardware: str) -> tuple[Purchase, ...]:
        """Every figure for buying this node, those to calculate with first."""
        found = [p for each in self.lists for p in each.purchases if hardware in p.hardware]
        return tuple(sorted(found, key=lambda one: one.quoted))

    def modelled(self, hardware: str) -> tuple[ModelledPrice, ...]:
        """What others calculate for a GPU-hour of this node."""
        return tuple(p for each in self.lists for p in each.modelled if hardware in p.hardware)


def given_price(usd_per_gpu_hour: float) -> GpuHourPrice:
    """The price that the user gave."""
    usd = usd_per_gpu_hour
    return GpuHourPrice(
        usd=Estimate(value=usd, low=usd, high=usd),
        provider="given",
        provider_class=None,
        term=None,
        dated=None,
        basis=Basis.EXACT,
        source="--price",
    )


def rental_price(
    book: PriceBook, *, hardware: str, provider: str, term: Term
) -> GpuHourPrice | None:
    """The price of a provider, or the preset of a class; None where neither has one.

    A class's price is its preset, or its preset on demand times the factor of the term; its range
    spans the preset and every seller of that class and term.
    """
    by_id = {each.id: each for each in book.lists if each.provider_class is not None}
    chosen = by_id.get(provider)
    if chosen is None and provider in {*ProviderClass}:
        return None  # its list names no such hardware, or it would have been read
    if chosen is None or chosen.provider_class is None:
        raise _unknown("provider", provider, list(by_id), flag="--provider")
    own = _own_price(chosen, hardware=hardware, term=term)
    if own is None or provider not in {*ProviderClass}:
        return own
    others = [
        rental.usd
        for each in by_id.values()
        if each.provider_class is chosen.provider_class and each is not chosen
        for rental in _rentals(each, hardware=hardware, term=term)
    ]
    return GpuHourPrice(
        usd=Estimate(
            value=own.usd.value,
            low=min([own.usd.low, *(usd.low for usd in others)]),
            high=max([own.usd.high, *(usd.high for usd in others)]),
        ),
        provider=own.provider,
        provider_class=own.provider_class,
        term=own.term,
        dated=own.dated,
        basis=own.basis,
        source=own.source,
        num_sources=1 + len(others),
    )


def api_offer(book: PriceBook, *, model: str, name: str | None) -> ApiOffer | None:
    """The offer called SELLER or SELLER/VARIANT; where none is named, the maker's standard one.

    Where the maker sells none, the cheapest standard one. None where nobody sells the model and
    no offer was named.
    """
    offers = {
        offer.name: offer
        for each in book.lists
        for price in each.apis
        if price.model == model
        for offer in [_offer(each, price)]
    }
    if name is not None:
        if name not in offers:
            raise _unknown(f"offer of {model}", name, list(offers), flag="--api")
        return offers[name]
    standard = [offer for offer in offers.values() if "/" not in offer.name]
    return min(standard, key=_rank, default=None)


def _rank(offer: ApiOffer) -> tuple[bool, float, float, str]:
    price = offer.price
    return (not offer.first_party, price.usd_per_m_output, price.usd_per_m_input, offer.name)


def _offer(seller: PriceList, price: ApiPrice) -> ApiOffer:
    name = seller.id if price.variant == "standard" else f"{seller.id}/{price.variant}"
    return ApiOffer(name=name, seller=seller.name, first_party=seller.first_party, price=price)


def _rentals(seller: PriceList, *, hardware: str, term: Term) -> list[Rental]:
    return [one for one in seller.rentals if one.term is term and hardware in one.hardware]


def _own_price(seller: PriceList, *, hardware: str, term: Term) -> GpuHourPrice | None:
    for rental in _rentals(seller, hardware=hardware, term=term):
        return _priced(seller, rental, usd=rental.usd, term=term)
    for factor in seller.terms:
        for rental in _rentals(seller, hardware=hardware, term=Term.ON_DEMAND):
            if factor.term is term:
                price, share = rental.usd, factor.factor
                usd = Estimate(
                    value=price.value * share.value,
                    low=price.low * share.low,
                    high=price.high * share.high,
                )
                return _priced(seller, rental, usd=usd, term=term)
    return None


def _priced(seller: PriceList, rental: Rental, *, usd: Estimate, term: Term) -> GpuHourPrice:
    return GpuHourPrice(
        usd=usd,
        provider=seller.id,
        provider_class=seller.provider_class,
        term=term,
        dated=rental.dated,
        basis=rental.basis,
        source=rental.source.url,
    )


def _unknown(what: str, name: str, known: list[str], *, flag: str) -> UsageError:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[:10]
    return UsageError(
        f"no {what} is called {name[:60]!r}",
        where=flag,
        remedy=f"use {' or '.join(near)}; k31ctl profiles list prices shows all"
        if near
        else "add its prices with --profiles DIR",
    )
