"""Published launch settings as core types."""

from collections.abc import Iterator
from typing import Final

from k31ctl.catalog.decode import decode
from k31ctl.catalog.store import Kind, Store
from k31ctl.core.recipe import Recipe, RecipeBook

_SHARED: Final = ("engine", "version", "model")


def load_recipe_book(store: Store, profile_id: str) -> RecipeBook:
    """Return the recipes of one file, each with the engine, version and model of the file."""
    raw, where = store.load(Kind.RECIPES, profile_id)
    shared = {key: raw[key] for key in _SHARED if key in raw}
    written = raw.get("recipes")
    if isinstance(written, list):
        each = [{**shared, **entry} if isinstance(entry, dict) else entry for entry in written]
        raw = {**raw, "recipes": each}
    return decode(RecipeBook, raw, where=where)


def recipes_for(store: Store, *, engine: str) -> tuple[Recipe, ...]:
    """Return every recipe of an engine, from the files that are named ``...-engine``."""
    return tuple(_recipes(store, engine))


def _recipes(store: Store, engine: str) -> Iterator[Recipe]:
    for profile_id in store.ids(Kind.RECIPES):
        if profile_id.endswith(f"-{engine}"):
            yield from store.once(Kind.RECIPES, profile_id, load_recipe_book).recipes
