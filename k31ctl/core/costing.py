"""From what was asked about money, and the catalog's prices, to the cost of a deployment."""

from k31ctl.core.cost import Cost, Mix, Served, cost_of
from k31ctl.core.cost_notes import cost_assumptions
from k31ctl.core.hardware import Node
from k31ctl.core.ownership import OWNED, Ownership, owned_price, ownership_of
from k31ctl.core.price_choice import (
    GpuHourPrice,
    PriceBook,
    api_offer,
    given_price,
    rental_price,
)
from k31ctl.core.prices import ProviderClass, Term, fixed
from k31ctl.errors import InputError, UsageError
from k31ctl.values import frozen


@frozen
class CostRequest:
    """What the user said about money; None is left to the catalog."""

    usd_per_gpu_hour: float | None
    provider: str | None
    term: Term | None
    utilisation: float | None
    api: str | None
    purchase_usd: float | None
    staff_usd_per_year: float | None
    usd_per_kwh: float | None

    @property
    def asks_for_price(self) -> bool:
        """Whether the user named a price or a seller, rather than leave it to the presets."""
        return self.provider is not None or self.term is not None


NO_WISHES = CostRequest(
    usd_per_gpu_hour=None,
    provider=None,
    term=None,
    utilisation=None,
    api=None,
    purchase_usd=None,
    staff_usd_per_year=None,
    usd_per_kwh=None,
)


@frozen
class Unpriced:
    """Why there is no cost, and what would give one."""

    what: str
    remedy: str


def costed(
    book: PriceBook,
    request: CostRequest,
    *,
    node: Node,
    num_nodes: int,
    model: str,
    served: Served,
    mix: Mix,
) -> Cost | Unpriced:
    """The cost of a deployment, or why the catalog cannot say."""
    ownership = _ownership(book, request, node=node, num_nodes=num_nodes)
    price = _price(book, request, node=node, ownership=ownership)
    if price is None:
        missing = _unpriced(request, node)
        if request.asks_for_price:
            raise UsageError(missing.what, where="--provider, --term", remedy=missing.remedy)
        return missing
    serving = book.serving
    offer = api_offer(book, model=model, name=request.api)
    return cost_of(
        served,
        mix=mix,
        utilisation=serving.utilisation if request.utilisation is None else request.utilisation,
        price=price,
        cached_input_weight=serving.cached_input_weight,
        offer=offer,
        ownership=ownership,
        assumptions=cost_assumptions(
            book,
            price=price,
            offer=offer,
            ownership=ownership,
            utilisation_given=request.utilisation is not None,
            electricity_given=request.usd_per_kwh is not None,
        ),
    )


def usd_per_gpu_hour(
    book: PriceBook | None, request: CostRequest, *, node: Node, num_nodes: int
) -> float | None:
    """What an hour of one of these GPUs costs, in US dollars; None where no price is known."""
    if book is None:
        return request.usd_per_gpu_hour
    owned = _ownership(book, request, node=node, num_nodes=num_nodes)
    found = _price(book, request, node=node, ownership=owned)
    return found.usd.value if found else None


def _price(
    book: PriceBook, request: CostRequest, *, node: Node, ownership: Ownership | None
) -> GpuHourPrice | None:
    if request.usd_per_gpu_hour is not None:
        return given_price(request.usd_per_gpu_hour)
    if request.provider == OWNED or (request.provider is None and request.purchase_usd):
        return owned_price(ownership) if ownership else None
    return rental_price(
        book,
        hardware=node.id,
        provider=request.provider or ProviderClass.NEOCLOUD,
        term=request.term or Term.ON_DEMAND,
    )


def _ownership(
    book: PriceBook, request: CostRequest, *, node: Node, num_nodes: int
) -> Ownership | None:
    """Three years of owning these nodes, where their price and their power are known."""
    figures = book.purchases(node.id)
    usable = [figure for figure in figures if not figure.quoted]
    given = request.purchase_usd is not None
    if node.power_per_gpu is None and (given or request.provider == OWNED):
        raise InputError(
            f"{node.name} does not say how much power a GPU takes",
            where=f"hardware profile {node.id}",
            remedy="add power_per_gpu, all-in with cooling, such as 2300 W; or pass --price",
        )
    if node.power_per_gpu is None or not (given or usable):
        return None
    site = book.site
    if request.usd_per_kwh is not None:
        site = site.with_electricity(request.usd_per_kwh)
    return ownership_of(
        node,
        num_nodes=num_nodes,
        power_watts_per_gpu=node.power_per_gpu,
        usd_per_node=usable[0].usd if request.purchase_usd is None else fixed(request.purchase_usd),
        given=given,
        owning=book.owning,
        site=site,
        staff_usd_per_year=request.staff_usd_per_year or 0,
        figures=figures,
        modelled=book.modelled(node.id),
    )


def _unpriced(request: CostRequest, node: Node) -> Unpriced:
    seller = request.provider or ProviderClass.NEOCLOUD
    if seller == OWNED:
        return Unpriced(
            what=f"the price of a {node.id} is not known",
            remedy="pass --purchase USD, the price of one node",
        )
    return Unpriced(
        what=f"{seller} has no price of a {node.id} {request.term or Term.ON_DEMAND}",
        remedy="pass --price USD_PER_GPU_HOUR, or a price list with --profiles DIR",
    )
