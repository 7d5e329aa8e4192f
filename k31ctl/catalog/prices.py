"""Price lists as core types."""

from collections.abc import Sequence
from typing import Final, TypeVar

from k31ctl.catalog.decode import decode
from k31ctl.catalog.store import Kind, Store, read_profile, read_text
from k31ctl.core.price_choice import PriceBook
from k31ctl.core.prices import PriceList
from k31ctl.errors import ProfileError

T = TypeVar("T")
_SECTIONS: Final = ("owning:", "site:", "serving:")


def load_price_list(store: Store, profile_id: str) -> PriceList:
    """Return the price list that a file holds; the hardware it names must have profiles."""
    raw, where = store.load(Kind.PRICES, profile_id)
    return _price_list(raw, where=where, hardware=store.ids(Kind.HARDWARE))


def _price_list(raw: object, *, where: str, hardware: list[str]) -> PriceList:
    found = decode(PriceList, raw, where=where)
    for section in (found.rentals, found.purchases, found.modelled):
        for entry in section:
            for name in entry.hardware:
                if name not in hardware:
                    raise ProfileError(
                        f"no hardware profile is called {name[:60]!r}",
                        where=where,
                        remedy="name profiles that k31ctl profiles list hardware shows",
                    )
    return found


def load_price_book(store: Store, *, about: Sequence[str] = ()) -> PriceBook:
    """Return the price lists, and the one of each that says what owning and serving take.

    With ``about``, only the lists that name one of these words, and those that sell nothing:
    the others could not matter to what is priced, and reading them all takes a while.
    """
    hardware = store.ids(Kind.HARDWARE)
    paths = store.paths(Kind.PRICES)
    if about:
        words = (*about, *_SECTIONS)
        paths = {
            profile_id: path
            for profile_id, path in paths.items()
            if profile_id in about or any(word in read_text(path) for word in words)
        }
    lists = tuple(
        _price_list(read_profile(path), where=str(path), hardware=hardware)
        for path in paths.values()
    )
    return PriceBook(
        lists=lists,
        owning=_only("owning", [(each.id, each.owning) for each in lists if each.owning]),
        site=_only("site", [(each.id, each.site) for each in lists if each.site]),
        serving=_only("serving", [(each.id, each.serving) for each in lists if each.serving]),
    )


def _only(section: str, found: list[tuple[str, T]]) -> T:
    if len(found) != 1:
        held = ", ".join(profile_id for profile_id, _ in found) or "no file"
        raise ProfileError(
            f"{held} holds {section}, which exactly one price list must",
            where="prices",
            remedy=f"to change it, write a file with the id of the packaged one ({section} is in "
            f"{'purchase' if section == 'owning' else section})",
        )
    return found[0][1]
