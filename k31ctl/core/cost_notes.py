"""What a cost takes for granted, each with the reason that the catalog gives for it."""

from collections.abc import Mapping

from k31ctl.core.figure import Assumption, Basis
from k31ctl.core.hardware import Mark
from k31ctl.core.ownership import Ownership
from k31ctl.core.price_choice import ApiOffer, GpuHourPrice, PriceBook
from k31ctl.units import percent


def cost_assumptions(
    book: PriceBook,
    *,
    price: GpuHourPrice,
    offer: ApiOffer | None,
    ownership: Ownership | None,
    utilisation_given: bool,
    electricity_given: bool,
) -> tuple[Assumption, ...]:
    """Everything about money that is believed and not known, in the order it is used."""
    found = []
    if price.basis is Basis.ASSUMED and price.term is not None:
        found.append(
            Assumption(
                id="gpu-hour",
                text=f"a GPU-hour at ${price.usd.value:.2f} is a preset; prices of one GPU differ "
                "several-fold between sellers",
                basis=price.basis,
                source=price.source,
            )
        )
    serving = book.serving
    if not utilisation_given:
        text = f"busy for {percent(serving.utilisation)} of the time"
        found.append(_marked("utilisation", text, serving.marks, serving.source.url))
    text = f"a cached input token costs {percent(serving.cached_input_weight)} of a computed one"
    found.append(_marked("cached_input_weight", text, serving.marks, serving.source.url))
    if offer is not None:
        found.append(
            Assumption(
                id="api-cache",
                text="the API finds as much of each prompt in its cache as this deployment",
                basis=Basis.ASSUMED,
                source="the same mix on both sides",
            )
        )
    if ownership is not None:
        found += _owning(book, ownership, electricity_given=electricity_given)
    return tuple(found)


def _owning(book: PriceBook, ownership: Ownership, *, electricity_given: bool) -> list[Assumption]:
    owning, site = book.owning, book.site
    found = []
    if not ownership.given:
        used = ownership.figures[0]
        found.append(
            Assumption(
                id="owning-purchase",
                text=f"a node costs ${used.usd.low:,.0f} to ${used.usd.high:,.0f}: "
                f"{used.source.says}",
                basis=used.basis,
                source=used.source.url,
            )
        )
    texts = {
        "network_fraction": f"network and storage add {percent(owning.network_fraction.value)}",
        "support_fraction": "support and spares take "
        f"{percent(owning.support_fraction.value)} a year",
        "depreciation_years": f"a node lasts {owning.depreciation_years:g} years",
        "residual_fraction": f"{percent(owning.residual_fraction)} of its price is left then",
        "availability_fraction": f"nodes work {percent(owning.availability_fraction)} of the time",
    }
    found += [
        _marked(f"owning_{key}", text, owning.marks, owning.source.url)
        for key, text in texts.items()
    ]
    texts = {
        "usd_per_kwh": f"electricity at ${site.usd_per_kwh.value:g}/kWh",
        "usd_per_kw_month": f"colocation at ${site.usd_per_kw_month.value:g} a kW and month",
        "included_pue": f"a hardware profile's power includes cooling at PUE {site.included_pue:g}",
        "load_fraction": f"the draw is {percent(site.load_fraction)} of that power on average",
    }
    if electricity_given:
        del texts["usd_per_kwh"]
    found += [
        _marked(f"owning_{key}", text, site.marks, site.source.url) for key, text in texts.items()
    ]
    return found


def _marked(key: str, text: str, marks: Mapping[str, Mark], source: str) -> Assumption:
    mark = marks.get(key.removeprefix("owning_"))
    return Assumption(
        id=key.replace("_", "-"),
        text=f"{text}: {mark.why}" if mark else text,
        basis=mark.basis if mark else Basis.ASSUMED,
        source=source,
    )
