"""What is to be served: by the options alone, or by a plan that was written down and them."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.planned import PlannedSettings
from k31ctl.serve.from_plan import Wish

if TYPE_CHECKING:
    from k31ctl.catalog.store import Store
    from k31ctl.core.hardware import Node


def said_by_user(ctx: typer.Context) -> frozenset[str]:
    """Return the names of the options that were written, whatever their values."""
    given = ctx.params
    return frozenset(n for n in given if (s := ctx.get_parameter_source(n)) and s.name != "DEFAULT")


def wish_of(
    store: "Store",
    *,
    plan: Path | None,
    said: frozenset[str],
    model: str,
    engine: str,
    on: str,
    layout: AskedLayout,
    context: int | None,
    max_model_len: int | None,
    kv_dtype: KvFormat | None,
    draft: str | None,
    draft_tokens: int | None,
    text_only: bool,
) -> Wish:
    """Return what the options say, joined to the plan where there is one."""
    given = Wish(
        model=model,
        engine=engine,
        hardware=on,
        layout=layout,
        context_tokens=context,
        max_model_len=max_model_len,
        kv_dtype=kv_dtype,
        draft=draft,
        draft_tokens=draft_tokens,
        text_only=text_only,
        settings=PlannedSettings(),
    )
    if plan is None:
        return given
    from k31ctl.catalog.models import load_model
    from k31ctl.catalog.plan_file import load_plan_file
    from k31ctl.serve.from_plan import joined

    planned = load_plan_file(plan)
    return joined(planned, given, said, model_id=lambda spec: load_model(store, spec).id)


def node_here(store: "Store", on: str) -> "Node | None":
    """Return this machine, named as its recipes name its GPUs; None where ``on`` is a profile."""
    from k31ctl.cli.hardware import THIS_MACHINE, node_named

    if on != THIS_MACHINE:
        return None
    from dataclasses import replace

    from k31ctl.catalog.hardware import load_nodes

    node = node_named(store, on)
    alike = next(known for known in load_nodes(store) if known.gpu.name == node.gpu.name)
    return replace(node, id=f"{node.num_gpus}x-{alike.id.partition('-')[2]}")
