"""What the options beside a plan ask for, read from the catalog only where one of them is given."""

from typing import TYPE_CHECKING

from k31ctl.catalog.store import Store

if TYPE_CHECKING:
    from k31ctl.core.asked_pools import AskedPools
    from k31ctl.core.further import Further
    from k31ctl.core.plan import Plan

DEFAULT_STORAGE = "local-nvme"


def further_answers(
    store: Store,
    plan: "Plan",
    *,
    cold_start: bool,
    link_rate: float | None,
    storage: str | None,
    loader: str | None,
    warm_caches: bool,
    disaggregate: "AskedPools | None",
) -> "Further | None":
    """The answers that were asked for; any option of a cold start asks for one."""
    starting = cold_start or link_rate is not None or bool(storage or loader) or warm_caches
    if not starting and disaggregate is None:
        return None
    from k31ctl.catalog.storage import HUB, load_startup, load_storage
    from k31ctl.core.cold_start import given_link
    from k31ctl.core.further import AskedStart, further

    start = None
    if starting:
        start = AskedStart(
            storage=load_storage(store, storage or DEFAULT_STORAGE),
            reader=loader,
            startup=load_startup(store),
            link=given_link(link_rate) if link_rate else load_storage(store, HUB).read,
            warm_caches=warm_caches,
        )
    return further(plan, start=start, pools=disaggregate)
