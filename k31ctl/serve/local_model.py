"""A model that is given as a file or a folder: where its checkpoint lies."""

import os
from pathlib import Path

from k31ctl.catalog.json_text import CONFIG_NAME
from k31ctl.catalog.models import names_file
from k31ctl.catalog.store import Store
from k31ctl.errors import UsageError


def checkpoint_folder(store: Store, spec: str) -> str | None:
    """The whole path of the checkpoint that MODEL stands for; None where it names a release.

    Raises UsageError where a configuration has no weights beside it, so that no engine loads it.
    """
    if not names_file(store, spec):
        return None
    path = Path(os.path.abspath(spec))  # noqa: PTH100  links stay: a hub's cache is made of them
    folder = path.parent if path.name == CONFIG_NAME else path
    if next(folder.glob("*.safetensors"), None) is None:
        raise UsageError(
            "this is a configuration without its weights, which no engine loads",
            where=spec[:200],
            remedy="add --model-path DIR, the checkpoint's folder on every node",
        )
    return str(folder)


def checkpoint_at(spec: str) -> Path:
    """The folder of a checkpoint; raises UsageError for anything else, such as a profile's name."""
    path = Path(os.path.abspath(spec))  # noqa: PTH100  links stay: a hub's cache is made of them
    folder = path.parent if path.name == CONFIG_NAME else path
    try:
        is_there = folder.is_dir() and next(folder.glob("*.safetensors"), None) is not None
    except (OSError, ValueError):
        is_there = False
    if not is_there:
        raise UsageError(
            "the embedded engine runs a checkpoint that is here, and this is no folder of one",
            where=spec[:200],
            remedy="name a folder with config.json and safetensors files, such as k31ctl tiny "
            "writes, or use one of vllm, sglang, tokenspeed and tensorrt-llm",
        )
    return folder
