"""How a launch and its folder are called where names are restricted."""

import re
from typing import Final

from k31ctl.core.request import Parts
from k31ctl.errors import UsageError
from k31ctl.serve.rollout import Server

_LONGEST_NAME: Final = 40


def title_of(parts: Parts, version: str, servers: tuple[Server, ...]) -> str:
    """One line that says what is started, on what, and how it is laid out."""
    each = []
    for server in servers:
        layout = server.plan.layout
        count = "" if layout.nodes == 1 else f"{layout.nodes} x "
        pool = f"{server.name} " if len(servers) > 1 else ""
        each.append(f"{pool}on {count}{parts.node.id} ({layout.text})")
    engine = f"{parts.engine.engine} {version}"
    return f"{parts.model.name} with {engine} {', '.join(each)}"


def folder_of(path: str | None, *, absolute: bool) -> str | None:
    """A folder that no engine reads as a flag."""
    if path is None:
        return None
    if not path.startswith("/") and absolute:
        raise UsageError(
            f"{path[:60]!r} means another folder where these files are used",
            where="--model-path",
            remedy="give the whole path, from /",
        )
    if not path:
        raise UsageError(
            "an empty path is no folder",
            where="--model-path",
            remedy="name the checkpoint's folder",
        )
    return path if path.startswith("/") else f"./{path.removeprefix('./')}"


def dns_name(text: str) -> str:
    """Text as a name that Kubernetes, Compose and Slurm take."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    return name or "model"
