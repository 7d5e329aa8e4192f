"""Launches for the tests of the serve room: asked for with a few words, the rest as usual."""

from typing import Any

from k31ctl.catalog import Store, default_folders
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.recipe import Recipe, Role
from k31ctl.serve.asked import Asked, Place, Target
from k31ctl.serve.gather import Gathered, gather
from k31ctl.serve.launch_files import rollout
from k31ctl.serve.rollout import Rollout

STORE = Store(default_folders())
NOWHERE = Place(head=None, hosts=(), interface=None)
SIZES = ("tp", "pp", "dp", "ep", "dcp")
GPUS_OF_NODE = {"GB200": 4, "GB300": 4}


def asked(nodes: int = 1, target: Target = Target.SHELL, **changed: Any) -> Asked:
    """A wish with nothing in it but the number of nodes, and what is changed."""
    layout = AskedLayout(nodes=nodes, **{size: changed.pop(size, None) for size in SIZES})
    usual: dict[str, Any] = {
        "role": Role.UNIFIED,
        "layout": layout,
        "aim": None,
        "target": target,
        "context_tokens": 8192,
        "kv_dtype": None,
        "max_model_len": None,
        "draft": None,
        "draft_tokens": None,
        "overlays": (),
        "text_only": False,
        "port": None,
        "served_name": None,
        "folder": None,
        "image": None,
    }
    return Asked(**{**usual, **changed})


def parts(
    model: str = "kimi-k3", engine: str = "vllm", on: str = "8x-b300", draft: str | None = None
) -> Gathered:
    """The parts of a launch."""
    return gather(STORE, model=model, engine=engine, on=on, draft=draft, image=None)


def launch(
    model: str = "kimi-k3",
    engine: str = "vllm",
    on: str = "8x-b300",
    *,
    place: Place = NOWHERE,
    draft: str | None = None,
    **changed: Any,
) -> Rollout:
    """A whole launch."""
    gathered = gather(
        STORE, model=model, engine=engine, on=on, draft=draft, image=changed.get("image")
    )
    return rollout(gathered, asked(draft=draft, **changed), place)


def node_of(recipe: Recipe, gpu: str) -> tuple[str, int]:
    """The hardware profile of a recipe and how many of it."""
    each = GPUS_OF_NODE.get(gpu, 8)
    return f"{each}x-{gpu.lower()}", recipe.nodes * recipe.gpus_per_node // each
