"""Price lists: what is packaged, and what a list must not say."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from k31ctl.catalog import Kind, Store, default_folders
from k31ctl.catalog.check import check_profiles
from k31ctl.catalog.listing import list_profiles
from k31ctl.catalog.prices import load_price_book, load_price_list
from k31ctl.core.figure import Basis
from k31ctl.core.hardware import Source
from k31ctl.core.price_choice import rental_price
from k31ctl.core.prices import ProviderClass, Range, Term
from k31ctl.errors import ProfileError

STORE = Store(default_folders())
BOOK = load_price_book(STORE)
SOURCE = 'source: {url: "https://example.com", checked: 2026-11-29}'
RENTAL = (
    "id: mine\nname: Mine\nprovider_class: neocloud\nrentals:\n  - {hardware: [8x-b300], "
    f"term: on-demand, usd_per_gpu_hour: 7.4, basis: measured, dated: 2026-08-26, {SOURCE}}}\n"
)
API = (
    "id: mine\nname: Mine\napis:\n  - {model: kimi-k3, usd_per_m_input: 3, "
    "usd_per_m_cached_input: 0.3, usd_per_m_output: 15, basis: measured, dated: 2026-08-04, "
    f"{SOURCE}}}\n"
)


def store_with(tmp_path: Path, text: str) -> Store:
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "mine.yaml").write_text(text)
    return Store((*default_folders(), tmp_path))


def refusal(tmp_path: Path, text: str) -> ProfileError:
    store = store_with(tmp_path, text)
    with pytest.raises(ProfileError) as caught:
        load_price_list(store, "mine")
    assert caught.value.where.endswith("mine.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("7.4", "0", "rentals[0]: usd_per_gpu_hour must be above 0"),
        ("7.4", "-1", "rentals[0]: usd_per_gpu_hour must be above 0"),
        ("7.4", ".inf", ".inf is not a finite number"),
        ("7.4", ".nan", ".nan is not a finite number"),
        ("7.4", "cheap", "rentals[0].usd_per_gpu_hour: 'cheap' is not"),
        ("7.4", "7.4, low: 8", "rentals[0]: low, usd_per_gpu_hour and high must be"),
        ("7.4", "7.4, high: 7", "rentals[0]: low, usd_per_gpu_hour and high must be"),
        ("7.4", "7.4, low: 0", "rentals[0]: low, usd_per_gpu_hour and high must be"),
        (" dated: 2026-08-26,", "", "missing key rentals[0].dated"),
        ("2026-08-26", "soon", "rentals[0].dated: 'soon' is not a date"),
        ("2026-08-26", "2026-12-24", "rentals[0]: dated 2026-12-24 is after the day"),
        ("2026-08-26", "1999-08-26", "rentals[0]: dates must lie between"),
        ("checked: 2026-11-29", "checked: 3026-11-29", "rentals[0]: dates must lie between"),
        (", checked: 2026-11-29", "", "missing key rentals[0].source.checked"),
        (f", {SOURCE}", "", "missing key rentals[0].source"),
        ("8x-b300", "8x-b301", "no hardware profile is called '8x-b301'"),
        ("[8x-b300]", "[]", "rentals[0]: hardware must name at least one profile"),
        ("on-demand", "monthly", "rentals[0].term: 'monthly' is not one of on-demand"),
        ("provider_class: neocloud\n", "", "a list with rentals must name its provider_class"),
        ("usd_per_gpu_hour", "usd_per_hour", "unknown key rentals[0].usd_per_hour"),
    ],
)
def test_a_rental_that_cannot_be_is_named_by_its_key(
    tmp_path: Path, old: str, new: str, what: str
) -> None:
    assert what in refusal(tmp_path, RENTAL.replace(old, new)).what


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("output: 15", "output: 0", "apis[0]: usd_per_m_output must be above 0"),
        ("cached_input: 0.3", "cached_input: 0", "usd_per_m_cached_input must be above 0"),
        ("cached_input: 0.3", "cached_input: 4", "must not be above usd_per_m_input"),
        (" usd_per_m_input: 3,", "", "missing key apis[0].usd_per_m_input"),
    ],
)
def test_a_token_price_that_cannot_be_is_named_by_its_key(
    tmp_path: Path, old: str, new: str, what: str
) -> None:
    assert what in refusal(tmp_path, API.replace(old, new)).what


def test_two_prices_for_the_same_thing_are_refused(tmp_path: Path) -> None:
    entry = RENTAL.split("rentals:\n")[1]
    found = refusal(tmp_path, RENTAL + entry)
    assert "rentals has more than one price for 8x-b300, on-demand" in found.what


def test_a_list_without_prices_is_refused(tmp_path: Path) -> None:
    found = refusal(tmp_path, "id: mine\nname: Mine\n")
    assert "must hold at least one price" in found.what


def test_the_check_reads_price_lists(tmp_path: Path) -> None:
    store_with(tmp_path, RENTAL.replace("7.4", "0"))
    found = check_profiles(default_folders(), [tmp_path])
    assert found.exit_code == 3
    assert [each.message for each in found.findings] == [
        "rentals[0]: usd_per_gpu_hour must be above 0"
    ]


def test_a_list_of_one_s_own_is_a_provider(tmp_path: Path) -> None:
    book = load_price_book(store_with(tmp_path, RENTAL))
    found = rental_price(book, hardware="8x-b300", provider="mine", term=Term.ON_DEMAND)
    assert found
    assert found.usd.value == 7.4


def test_a_second_site_is_refused_with_the_way_to_change_the_first(tmp_path: Path) -> None:
    site = STORE.paths("prices")["site"].read_text().replace("id: site", "id: mine")
    with pytest.raises(ProfileError) as caught:
        load_price_book(store_with(tmp_path, site))
    assert caught.value.what == "mine, site holds site, which exactly one price list must"


def test_price_lists_are_listed_by_name() -> None:
    found = {each.id: each.name for each in list_profiles(STORE, "prices")}
    assert found["coreweave"] == "CoreWeave"
    assert set(found) == {each.id for each in BOOK.lists}


def test_every_class_has_a_preset_that_says_it_is_assumed() -> None:
    presets = [each for each in BOOK.lists if each.id in {*ProviderClass}]
    assert {each.provider_class for each in presets} == {*ProviderClass}
    assert all(one.basis is Basis.ASSUMED for each in presets for one in each.rentals)
    assert all(each.provider_class == each.id for each in presets)


def test_the_price_of_a_model_names_a_profile_of_a_model() -> None:
    models = {price.model for each in BOOK.lists for price in each.apis}
    assert models <= set(STORE.ids(Kind.MODELS))


def test_every_source_of_a_used_price_is_an_address() -> None:
    sources: list[Source] = []
    for each in BOOK.lists:
        sources += [one.source for one in each.rentals]
        sources += [one.source for one in each.terms]
        sources += [one.source for one in each.apis]
        sources += [one.source for one in each.modelled]
        sources += [one.source for one in each.purchases if not one.quoted]
    assert all(source.url.startswith("https://") for source in sources)


def test_what_is_assumed_about_owning_and_serving_says_why() -> None:
    for section in (BOOK.owning, BOOK.site, BOOK.serving):
        named = {each.name for each in fields(section) if each.name not in ("marks", "source")}
        assert set(section.marks) == named


def rows_of_the_page() -> Iterator[str]:
    """The rows that docs/cost.md must have for what is assumed about owning and serving."""
    for section in (BOOK.serving, BOOK.owning, BOOK.site):
        for key, mark in section.marks.items():
            value = getattr(section, key)
            ends = f"{value.low:g} to {value.high:g}" if isinstance(value, Range) else ""
            shown = value.value if isinstance(value, Range) else value
            yield f"| `{key}` | {shown:g} | {ends} | {mark.why} |"


@pytest.mark.parametrize("row", [*rows_of_the_page()], ids=lambda row: row.split("`")[1])
def test_the_page_about_cost_has_the_defaults_of_the_price_lists(row: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "cost.md"
    assert row in page.read_text().splitlines()
