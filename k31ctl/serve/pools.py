"""Prefill and decode as pools of their own, and the router before them."""

from dataclasses import replace
from typing import Final

from k31ctl.core.asked_pools import AskedPool, AskedPools
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.recipe import Role
from k31ctl.errors import RefusedError, UsageError
from k31ctl.serve.asked import Asked, Target
from k31ctl.serve.gather import Gathered
from k31ctl.serve.ledger import Ledger
from k31ctl.serve.recipe_choice import gpu_word
from k31ctl.serve.rollout import NodeValue, Router, Server, Standing, Where, Word

BOOTSTRAP_PORT: Final = 8998
ROUTER_PORT: Final = 8000
_NEVER_S: Final = 999_999
_MODE: Final = "--disaggregation-mode"
_SOURCE: Final = "sgl-project/sglang cookbook Kimi-K3, disaggregation"
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
    if engine.engine != "sglang":
        raise RefusedError(
            f"{engine.name} needs a router with an agent beside every pool, which is not written",
            where="--disaggregate",
            remedy="use --engine sglang, whose own router joins the pools",
            rule="serve-pools-engine",
            source="vLLM issue 52627: corrupted output with NIXL pools of Kimi K3",
        )
    if asked.target is Target.DYNAMO:
        raise UsageError(
            "pools are not written as a Dynamo graph",
            where="--as dynamo",
            remedy="use --as kubernetes",
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


def role_settings(ledger: Ledger, role: Role, *, engine: str) -> None:
    """Put what makes a server one half; a recipe for the role says the same."""
    if engine != "sglang" or role not in (Role.PREFILL, Role.DECODE):
        return
    values: dict[str, object] = {
        _MODE: role.value,
        "--disaggregation-transfer-backend": "nixl",
    }
    if role is Role.PREFILL:
        values["--disaggregation-bootstrap-port"] = BOOTSTRAP_PORT
    for flag, value in values.items():
        ledger.settle(
            flag,
            value,
            "this pool does one half of the work" if flag == _MODE else "joins the two pools",
            source=_SOURCE,
            standing=Standing.DERIVED,
        )


def router(prefill: Server, decode: Server) -> Router:
    """The router of two pools; the prefill's bootstrap port stands beside its address."""
    words: tuple[Word, ...] = (
        "--pd-disaggregation",
        "--prefill",
        NodeValue(where=Where.PREFILL, before="http://", after=f":{prefill.port}"),
        str(BOOTSTRAP_PORT),
        "--decode",
        NodeValue(where=Where.DECODE, before="http://", after=f":{decode.port}"),
        "--host",
        "0.0.0.0",
        "--port",
        str(ROUTER_PORT),
        "--disable-circuit-breaker",
        "--health-check-interval-secs",
        str(_NEVER_S),
    )
    program = ("python3", "-m", "sglang_router.launch_router")
    return Router(program=program, words=words, port=ROUTER_PORT)
