"""Contexts for the tests of rules: a command, what it runs on, and what is said beside it."""

import shlex
from typing import Any

from k31ctl.catalog.engines import load_draft, load_engine
from k31ctl.catalog.hardware import load_node
from k31ctl.catalog.models import load_model_profile
from k31ctl.catalog.speed import load_speed
from k31ctl.core.launch_form import find_call
from k31ctl.core.read_launch import read_launch
from k31ctl.core.rules import FileKind, LaunchContext
from tests.core.catalogs import CATALOGS, STORE

SPEED = load_speed(STORE, None)


def context(
    command: str,
    *,
    on: str = "",
    nodes: int = 0,
    version: str = "",
    model: str = "kimi-k3",
    draft: str = "",
    environment: dict[str, str] | None = None,
    kind: FileKind = FileKind.COMMAND,
    **more: Any,
) -> LaunchContext:
    """Return the context of one command line, read with the newest catalog of its engine."""
    words = shlex.split(command)
    call = find_call(words)
    assert call is not None
    catalog = CATALOGS[call.engine]
    return LaunchContext(
        launch=read_launch(words, call, catalog, environment=environment or {}),
        catalog=catalog,
        version=version or catalog.version,
        kind=kind,
        model=load_model_profile(STORE, model) if model else None,
        node=load_node(STORE, on) if on else None,
        nodes=nodes or (1 if on else 0),
        engine=load_engine(STORE, f"{call.engine}-{catalog.version}"),
        draft=load_draft(STORE, draft) if draft else None,
        speed=SPEED,
        **more,
    )
