"""What a launch can start from: recipes and layouts, the nearest to what was asked first."""

from k31ctl.core.layout import Layout
from k31ctl.core.layout_rules import AskedLayout, resolved
from k31ctl.core.recipe import Recipe
from k31ctl.serve.asked import Asked
from k31ctl.serve.gather import Gathered
from k31ctl.serve.node_settings import EXPERTS
from k31ctl.serve.recipe_choice import recipes_by_nearness
from k31ctl.values import frozen

_SIZES = ("tp", "pp", "dp", "ep", "dcp")


@frozen
class Base:
    """A recipe, None where none is near, and the layout that it is used with."""

    recipe: Recipe | None
    layout: Layout


def bases(gathered: Gathered, asked: Asked) -> tuple[Base, ...]:
    """Return what to try, in order.

    A layout that was asked for is kept, with a recipe of another layout where none has it.
    """
    usual = _resolved(gathered, asked.layout)
    recipes = gathered.recipes if gathered.model.architecture.startswith("KimiK3") else ()
    node = gathered.node
    near = recipes_by_nearness(recipes, node=node, asked=asked, layout=None)
    far = recipes_by_nearness(recipes, node=node, asked=asked, layout=None, same_size=False)
    if any(getattr(asked.layout, size) is not None for size in _SIZES):
        alike = recipes_by_nearness(recipes, node=node, asked=asked, layout=usual)
        return (Base(recipe=next(iter((*alike, *near, *far)), None), layout=usual),)
    found = [
        Base(recipe=recipe, layout=_resolved(gathered, _layout_of(recipe, asked.layout.nodes)))
        for recipe in near
    ]
    last = Base(recipe=next(iter((*near, *far)), None), layout=usual)
    return (*found, *(() if any(base.layout == usual for base in found) else (last,)))


def _layout_of(recipe: Recipe, nodes: int) -> AskedLayout:
    sizes = {size: recipe.layout.get(size, 1) for size in _SIZES}
    if EXPERTS in recipe.flags and recipe.engine == "vllm":
        sizes["ep"] = sizes["tp"] * sizes["dp"]
    return AskedLayout(nodes=nodes, **sizes)


def _resolved(gathered: Gathered, asked: AskedLayout) -> Layout:
    return resolved(asked, model=gathered.model, engine=gathered.engine, node=gathered.node)
