"""Prices as the catalog holds them: renting a GPU, buying a node, running a site, buying tokens."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import date
from enum import StrEnum
from typing import Final

from k31ctl.core.estimate import Estimate
from k31ctl.core.figure import Basis
from k31ctl.core.hardware import Mark, Source
from k31ctl.values import frozen

FIRST_YEAR: Final = 2020
LAST_YEAR: Final = 2099


class ProviderClass(StrEnum):
    """What kind of seller rents out a GPU; also the id of the preset for that kind."""

    MARKETPLACE = "marketplace"
    NEOCLOUD = "neocloud"
    HYPERSCALER = "hyperscaler"


class Term(StrEnum):
    """How long a GPU is rented for."""

    ON_DEMAND = "on-demand"
    ONE_YEAR = "1-year"
    THREE_YEAR = "3-year"
    SPOT = "spot"


@frozen
class Range:
    """A positive value and the ends that its sources give it."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse what is not positive, finite and in order."""
        if not (0 < self.low <= self.value <= self.high and math.isfinite(self.high)):
            raise ValueError("low, value and high must be above 0 and in this order")

    @property
    def estimate(self) -> Estimate:
        """The same three numbers, for arithmetic."""
        return Estimate(value=self.value, low=self.low, high=self.high)


def fixed(value: float) -> Range:
    """A range of one value."""
    return Range(value=value, low=value, high=value)


@frozen
class Rental:
    """What one seller asks for one GPU of these hardware profiles for an hour, in US dollars.

    ``low`` and ``high`` are the ends where a source gives a range.
    """

    hardware: tuple[str, ...]
    term: Term
    usd_per_gpu_hour: float
    low: float | None = None
    high: float | None = None
    basis: Basis
    dated: date
    source: Source

    def __post_init__(self) -> None:
        """State what cannot be true of a price."""
        _named(self.hardware)
        _positive("usd_per_gpu_hour", self.usd_per_gpu_hour)
        _dated(self.dated, self.source)
        if not 0 < self.usd.low <= self.usd.value <= self.usd.high:
            raise ValueError("low, usd_per_gpu_hour and high must be above 0 and in this order")

    @property
    def usd(self) -> Estimate:
        """The price with its ends."""
        value = self.usd_per_gpu_hour
        return Estimate(
            value=value,
            low=value if self.low is None else self.low,
            high=value if self.high is None else self.high,
        )


@frozen
class TermFactor:
    """What a commitment costs as a share of the same class's price on demand."""

    term: Term
    factor: Range
    basis: Basis
    dated: date
    source: Source

    def __post_init__(self) -> None:
        """State what cannot be true of a factor."""
        if self.term is Term.ON_DEMAND or self.factor.high > 1:
            raise ValueError("factor is a share of the price on demand, for another term")
        _dated(self.dated, self.source)


@frozen
class ModelledPrice:
    """What someone calculates that an owner, or a long contract, pays for a GPU-hour."""

    hardware: tuple[str, ...]
    owner: ProviderClass
    usd_per_gpu_hour: float
    basis: Basis
    dated: date
    source: Source

    def __post_init__(self) -> None:
        """State what cannot be true of a price."""
        _named(self.hardware)
        _positive("usd_per_gpu_hour", self.usd_per_gpu_hour)
        _dated(self.dated, self.source)


@frozen
class ApiPrice:
    """What a seller asks for a million tokens of a model; without a cached price, input's counts.

    ``variant`` tells apart what the seller calls faster, or bound to a region.
    """

    model: str
    variant: str = "standard"
    usd_per_m_input: float
    usd_per_m_cached_input: float | None = None
    usd_per_m_output: float
    basis: Basis
    dated: date
    source: Source

    def __post_init__(self) -> None:
        """State what cannot be true of a price."""
        _positive("usd_per_m_input", self.usd_per_m_input)
        _positive("usd_per_m_output", self.usd_per_m_output)
        if self.usd_per_m_cached_input is not None:
            _positive("usd_per_m_cached_input", self.usd_per_m_cached_input)
            if self.usd_per_m_cached_input > self.usd_per_m_input:
                raise ValueError("usd_per_m_cached_input must not be above usd_per_m_input")
        _dated(self.dated, self.source)


@frozen
class Purchase:
    """What one whole node or rack of these profiles costs to buy, in US dollars.

    A figure that is only ``quoted`` is shown beside the others and never calculated with.
    """

    hardware: tuple[str, ...]
    usd: Range
    quoted: bool = False
    basis: Basis
    dated: date
    source: Source

    def __post_init__(self) -> None:
        """State what cannot be true of a price."""
        _named(self.hardware)
        _dated(self.dated, self.source)


@frozen
class Owning:
    """What comes on top of a node's price, as shares of it, and how long the node lasts.

    ``network_fraction`` is of the node's price, once; ``support_fraction`` of all capital, each
    year, for support and spares. ``residual_fraction`` of capital is left after
    ``depreciation_years``. The node can be used for ``availability_fraction`` of the hours.
    """

    network_fraction: Range
    support_fraction: Range
    depreciation_years: float
    residual_fraction: float
    availability_fraction: float
    marks: Mapping[str, Mark] = field(default_factory=dict)
    source: Source

    def __post_init__(self) -> None:
        """State what cannot be true of an owner's terms."""
        _positive("depreciation_years", self.depreciation_years)
        _share("availability_fraction", self.availability_fraction)
        if not 0 <= self.residual_fraction < 1:
            raise ValueError("residual_fraction must be at least 0 and below 1")


@frozen
class Site:
    """What a place to run costs.

    ``included_pue`` is what a hardware profile's ``power_per_gpu`` already has for cooling, so
    energy is scaled by ``pue`` over it. ``load_fraction`` is the average draw over that power.
    """

    usd_per_kwh: Range
    usd_per_kw_month: Range
    pue: Range
    included_pue: float
    load_fraction: float
    marks: Mapping[str, Mark] = field(default_factory=dict)
    source: Source

    def __post_init__(self) -> None:
        """State what cannot be true of a site."""
        if self.pue.low < 1 or self.included_pue < 1:
            raise ValueError("pue and included_pue must be at least 1")
        _share("load_fraction", self.load_fraction)

    def with_electricity(self, usd_per_kwh: float) -> "Site":
        """The same site at a price of electricity that is known."""
        return replace(self, usd_per_kwh=fixed(usd_per_kwh))


@frozen
class Serving:
    """How a service is loaded on average, and what a cached token costs beside a computed one."""

    utilisation: float
    cached_input_weight: float
    marks: Mapping[str, Mark] = field(default_factory=dict)
    source: Source

    def __post_init__(self) -> None:
        """State what cannot be true of a service."""
        _share("utilisation", self.utilisation)
        if not 0 <= self.cached_input_weight <= 1:
            raise ValueError("cached_input_weight must be between 0 and 1")


@frozen
class PriceList:
    """One file of prices: a seller's, a class's preset, or what owning takes.

    ``first_party`` marks the API of those who made the models that it sells.
    """

    id: str
    name: str
    provider_class: ProviderClass | None = None
    first_party: bool = False
    rentals: tuple[Rental, ...] = ()
    terms: tuple[TermFactor, ...] = ()
    apis: tuple[ApiPrice, ...] = ()
    purchases: tuple[Purchase, ...] = ()
    modelled: tuple[ModelledPrice, ...] = ()
    owning: Owning | None = None
    site: Site | None = None
    serving: Serving | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """State what cannot be true of a list, so that a file cannot say it."""
        lists = (self.rentals, self.apis, self.purchases, self.modelled)
        if not any((*lists, self.owning, self.site, self.serving)):
            raise ValueError("a price list must hold at least one price")
        if (self.rentals or self.terms) and self.provider_class is None:
            raise ValueError("a list with rentals must name its provider_class")
        _once("rentals", ((name, one.term) for one in self.rentals for name in one.hardware))
        _once("terms", (one.term for one in self.terms))
        _once("apis", ((one.model, one.variant) for one in self.apis))
        _once(
            "purchases",
            (name for one in self.purchases if not one.quoted for name in one.hardware),
        )


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be above 0")


def _share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1")


def _named(hardware: tuple[str, ...]) -> None:
    if not hardware:
        raise ValueError("hardware must name at least one profile")


def _dated(dated: date, source: Source) -> None:
    if not FIRST_YEAR <= dated.year <= source.checked.year <= LAST_YEAR:
        raise ValueError(f"dates must lie between {FIRST_YEAR} and {LAST_YEAR}")
    if dated > source.checked:
        raise ValueError(f"dated {dated} is after the day it was checked, {source.checked}")


def _once(name: str, keys: Iterable[object]) -> None:
    seen = list(keys)
    for key in seen:
        if seen.count(key) > 1:
            shown = ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)
            raise ValueError(f"{name} has more than one price for {shown}")
