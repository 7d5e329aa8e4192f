"""Prefill and decode as pools of their own: what each of them is asked for."""

from dataclasses import replace
from typing import Final

from k31ctl.core.asked_pools import AskedPool, AskedPools
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.recipe import Role
from k31ctl.errors import RefusedError, UsageError
from k31ctl.serve.asked import Asked, Target
from k31ctl.serve.gather import Gathered
from k31ctl.serve.recipe_choice import gpu_word

_SOURCE: Final = "published recipes of Kimi K3, disaggregation"
_SIZES: Final = ("tp", "pp", "dp", "ep", "dcp")


def pool_wishes(gathered: Gathered, asked: Asked, pools: AskedPools) -> tuple[Asked, Asked]:
    """Return what each pool is asked for; raises where this engine's pools need another tool."""
    _check(gathered, asked)
    return (
        _wish(gathered, asked, pools.prefill, Role.PREFILL),
        _wish(gathered, asked, pools.decode, Role.DECODE),
    )


def _check(gathered: Gathered, asked: Asked) -> None:
    engine = gathered.engine
    if engine.engine not in ("sglang", "vllm"):
        raise RefusedError(
            f"nobody has published pools of {engine.name} for this model",
            where="--disaggregate",
            remedy="use --engine sglang or --engine vllm, whose routers join the pools",
            rule="serve-pools-engine",
            source="TokenSpeed 0.1.1 moves a cache with Mooncake alone; no recipe of it is known",
        )
    if asked.target is Target.KSERVE:
        raise UsageError(
            "KServe's service is written for one server",
            where="--as kserve",
            remedy="use --as kubernetes or --as dynamo",
        )


def _wish(gathered: Gathered, asked: Asked, pool: AskedPool | None, role: Role) -> Asked:
    """One instance of a pool; sizes that are open are those of the recipe for the fewest GPUs."""
    if pool is not None and (pool.instances or 1) > 1:
        raise UsageError(
            f"{pool.instances} instances of {role} are more than one set of files starts",
            where="--disaggregate",
            remedy="write the files once, start them that often, and name all to the router",
        )
    sizes = {size: getattr(pool, size) if pool else None for size in _SIZES}
    ranks = (
        (sizes["tp"] or 1) * (sizes["pp"] or 1) if any(sizes.values()) else _usual(gathered, role)
    )
    nodes = max(1, -(-ranks // gathered.node.num_gpus))
    return replace(asked, role=role, layout=AskedLayout(nodes=nodes, **sizes))


def _usual(gathered: Gathered, role: Role) -> int:
    gpu = gpu_word(gathered.node)
    known = [
        recipe.nodes * recipe.gpus_per_node
        for recipe in gathered.recipes
        if recipe.role is role and gpu in recipe.hardware
    ]
    if not known:
        raise RefusedError(
            f"no recipe of a {role} pool is known for {gathered.node.id}",
            where="--disaggregate",
            remedy="name the sizes of both pools, such as prefill=1xTP16,decode=1xTP16",
            rule="serve-pools-recipe",
            source=_SOURCE,
        )
    return min(known)
