"""What owning nodes costs over three years, and the GPU-hour price that it amounts to."""

from typing import Final

from k31ctl.core.estimate import Estimate
from k31ctl.core.figure import Basis
from k31ctl.core.hardware import Node
from k31ctl.core.price_choice import GpuHourPrice
from k31ctl.core.prices import ModelledPrice, Owning, Purchase, Range, Site
from k31ctl.units import percent
from k31ctl.values import frozen

HORIZON_YEARS: Final = 3
HOURS_PER_YEAR: Final = 8760
MONTHS_PER_YEAR: Final = 12
OWNED: Final = "owned"
W_PER_KW: Final = 1000


@frozen
class OwnershipLine:
    """One part of the cost of three years, in US dollars, and how it is counted."""

    key: str
    label: str
    usd: Estimate
    how: str


@frozen
class Ownership:
    """Three years of owning: the parts, their sum, and the sum by hour that a GPU is available.

    ``upfront_usd`` is what is paid on the first day; what is not written off after three years is
    no cost of theirs. ``figures`` are all prices that were found, the first one used unless the
    user gave one; ``modelled`` is what others calculate.
    """

    num_nodes: int
    num_gpus: int
    usd_per_node: Range
    given: bool
    upfront_usd: Estimate
    lines: tuple[OwnershipLine, ...]
    three_year_usd: Estimate
    usd_per_gpu_hour: Estimate
    figures: tuple[Purchase, ...]
    modelled: tuple[ModelledPrice, ...]


def ownership_of(
    node: Node,
    *,
    num_nodes: int,
    power_watts_per_gpu: float,
    usd_per_node: Range,
    given: bool,
    owning: Owning,
    site: Site,
    staff_usd_per_year: float,
    figures: tuple[Purchase, ...],
    modelled: tuple[ModelledPrice, ...],
) -> Ownership:
    """The cost of owning ``num_nodes`` of a node for three years.

    All ranges are taken at their low ends together, and at their high ends together. Staff is
    counted only where it is given: the figure is for everything that these nodes need.

    Formula: sum of lines / (num_gpus * 3 * 8760 * availability).
    """
    num_gpus = num_nodes * node.num_gpus
    kw = num_gpus * power_watts_per_gpu / W_PER_KW
    nodes = usd_per_node.estimate.scaled(num_nodes)
    network = _times(nodes, owning.network_fraction.estimate)
    lines = (
        *_capital_lines(nodes, network, owning=owning),
        *_running_lines(kw, owning=owning, site=site),
        _support_line(_plus(nodes, network), owning=owning),
        *_staff_lines(staff_usd_per_year),
    )
    total = _plus(*(line.usd for line in lines))
    gpu_hours = num_gpus * HORIZON_YEARS * HOURS_PER_YEAR * owning.availability_fraction
    return Ownership(
        num_nodes=num_nodes,
        num_gpus=num_gpus,
        usd_per_node=usd_per_node,
        given=given,
        upfront_usd=_plus(nodes, network),
        lines=lines,
        three_year_usd=total,
        usd_per_gpu_hour=total.scaled(1 / gpu_hours),
        figures=figures,
        modelled=modelled,
    )


def owned_price(ownership: Ownership) -> GpuHourPrice:
    """The GPU-hour price that owning amounts to, for an hour that the GPU is available."""
    found = ownership.figures[0] if ownership.figures and not ownership.given else None
    return GpuHourPrice(
        usd=ownership.usd_per_gpu_hour,
        provider=OWNED,
        provider_class=None,
        term=None,
        dated=found.dated if found else None,
        basis=Basis.ASSUMED,
        source=found.source.url if found else "--purchase",
    )


def _capital_lines(
    nodes: Estimate, network: Estimate, *, owning: Owning
) -> tuple[OwnershipLine, ...]:
    """Straight-line depreciation of both: price * (1 - residual) * min(1, 3 / D)."""
    D, r = owning.depreciation_years, owning.residual_fraction
    written_off = (1 - r) * min(1, HORIZON_YEARS / D)
    how = f"{percent(written_off)} written off"
    return (
        OwnershipLine(key="nodes", label="nodes", usd=nodes.scaled(written_off), how=how),
        OwnershipLine(
            key="network",
            label="network, storage",
            usd=network.scaled(written_off),
            how=f"{percent(owning.network_fraction.value)} on top of the nodes",
        ),
    )


def _running_lines(kw: float, *, owning: Owning, site: Site) -> tuple[OwnershipLine, ...]:
    """Rent for the rated power all the time; energy for the hours that the nodes are available."""
    rent = site.usd_per_kw_month.estimate.scaled(kw * MONTHS_PER_YEAR * HORIZON_YEARS)
    hours = HORIZON_YEARS * HOURS_PER_YEAR * owning.availability_fraction
    kwh = kw * site.load_fraction * hours
    cooled = site.pue.estimate.scaled(1 / site.included_pue)
    return (
        OwnershipLine(
            key="colocation",
            label="colocation",
            usd=rent,
            how=f"{kw:.1f} kW at ${site.usd_per_kw_month.value:g} a month",
        ),
        OwnershipLine(
            key="energy",
            label="energy",
            usd=_times(site.usd_per_kwh.estimate.scaled(kwh), cooled),
            how=f"{percent(site.load_fraction)} at ${site.usd_per_kwh.value:g}, "
            f"PUE {site.pue.value:g}",
        ),
    )


def _support_line(capital: Estimate, *, owning: Owning) -> OwnershipLine:
    share = owning.support_fraction
    return OwnershipLine(
        key="support",
        label="support, spares",
        usd=_times(capital, share.estimate).scaled(HORIZON_YEARS),
        how=f"{percent(share.value)} of the price a year",
    )


def _staff_lines(usd_per_year: float) -> tuple[OwnershipLine, ...]:
    if not usd_per_year:
        return ()
    usd = usd_per_year * HORIZON_YEARS
    return (
        OwnershipLine(
            key="staff",
            label="staff",
            usd=Estimate(value=usd, low=usd, high=usd),
            how=f"${usd_per_year:,.0f} a year",
        ),
    )


def _times(a: Estimate, b: Estimate) -> Estimate:
    return Estimate(value=a.value * b.value, low=a.low * b.low, high=a.high * b.high)


def _plus(*parts: Estimate) -> Estimate:
    return Estimate(
        value=sum(part.value for part in parts),
        low=sum(part.low for part in parts),
        high=sum(part.high for part in parts),
    )
