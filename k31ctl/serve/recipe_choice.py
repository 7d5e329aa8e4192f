"""Which published recipe a launch starts from: the nearest in hardware, layout and aim."""

import re
from collections.abc import Sequence
from typing import Final

from k31ctl.core.hardware import Node
from k31ctl.core.layout import Layout
from k31ctl.core.recipe import Recipe, Role, Status
from k31ctl.serve.asked import Aim, Asked, Target

_DYNAMO: Final = "dynamo.vllm"
_SPECULATION: Final = ("--speculative-config", "--speculative-algorithm")
_GOALS: Final = {
    Aim.LATENCY: ("low-latency",),
    Aim.THROUGHPUT: ("high-throughput", "peak-throughput"),
    Aim.COST: ("peak-throughput", "high-throughput"),
    Aim.CONTEXT: ("long-context", "peak-capacity"),
    Aim.BALANCED: ("balanced",),
}
_NEAREST_GPU: Final = {"H20-3E": "H200"}
_SIZES: Final = ("tp", "pp", "dp", "ep", "dcp")


def gpu_word(node: Node) -> str:
    """The name of the GPU as recipes write it, such as B300 or MI355X."""
    return re.sub(r"^\d+x-|-nvl\d+$", "", node.id).upper()


def recipes_by_nearness(
    recipes: Sequence[Recipe],
    *,
    node: Node,
    asked: Asked,
    layout: Layout | None,
    same_size: bool = True,
) -> tuple[Recipe, ...]:
    """Return the usable recipes, the nearest to what was asked first.

    ``layout`` is the layout that they must have, None where any will do. Only recipes of the same
    GPU and role count, and of as many GPUs where ``same_size`` is true.
    """
    gpu, num_gpus = gpu_word(node), asked.layout.nodes * node.num_gpus
    usable = [
        recipe
        for recipe in recipes
        if recipe.role is asked.role
        and _NEAREST_GPU.get(gpu, gpu) in recipe.hardware
        and (not same_size or recipe.nodes * recipe.gpus_per_node == num_gpus)
        and recipe.form.endswith(_DYNAMO) <= (asked.target is Target.DYNAMO)
        and (layout is None or same_layout(recipe, layout))
    ]
    return tuple(sorted(usable, key=lambda recipe: _nearness(recipe, asked), reverse=True))


def same_layout(recipe: Recipe, layout: Layout) -> bool:
    """Whether a recipe is for this layout; where it names no expert ranks, any number will do."""
    return all(
        recipe.layout.get(size, 1) == getattr(layout, size)
        for size in _SIZES
        if size != "ep" or "ep" in recipe.layout
    )


def speculates(recipe: Recipe) -> bool:
    """Whether a draft model is part of the recipe."""
    return any(flag in recipe.flags for flag in _SPECULATION)


def _nearness(recipe: Recipe, asked: Asked) -> tuple[object, ...]:
    """Higher is nearer; recipes that stand alike keep the order of their file."""
    wanted = _GOALS[asked.aim] if asked.aim else ("", "balanced", "low-latency")
    rank = wanted.index(recipe.goal) if recipe.goal in wanted else len(wanted)
    drafts = asked.draft is not None
    return (
        (recipe.form.endswith(_DYNAMO) and asked.target is Target.DYNAMO),
        -rank,
        speculates(recipe) is drafts,
        recipe.status is Status.VERIFIED,
    )


def overlays_for(recipes: Sequence[Recipe], names: Sequence[str]) -> tuple[Recipe, ...]:
    """Return the additions with these ids, in the order in which they are asked for."""
    known = {recipe.id: recipe for recipe in recipes if recipe.role is Role.OVERLAY}
    return tuple(known[name] for name in names if name in known)
