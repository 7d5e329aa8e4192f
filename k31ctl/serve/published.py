"""Whether a launch is one of the published settings, whose pages add what differs by node."""

from collections.abc import Mapping

from k31ctl.catalog.recipes import recipes_for
from k31ctl.catalog.store import Store
from k31ctl.core.flags import FlagCatalog
from k31ctl.core.launch import Launch
from k31ctl.core.launch_form import find_call
from k31ctl.core.read_launch import read_launch
from k31ctl.core.recipe import Recipe, Role


def is_published(store: Store, launch: Launch, catalog: FlagCatalog) -> bool:
    """Whether the launch has every setting of a published recipe of its engine."""
    own = _settings(launch)
    return any(
        recipe.role is not Role.OVERLAY and _of_recipe(recipe, catalog).items() <= own.items()
        for recipe in recipes_for(store, engine=launch.engine)
    )


def _of_recipe(recipe: Recipe, catalog: FlagCatalog) -> Mapping[str, str]:
    call = find_call(recipe.words)
    assert call is not None
    return _settings(read_launch(recipe.words, call, catalog, environment={}))


def _settings(launch: Launch) -> dict[str, str]:
    return {setting.dest: repr(setting.value) for setting in launch.settings}
