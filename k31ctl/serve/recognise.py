"""What the names in a launch file stand for: the engine's version, the model."""

import re
from collections.abc import Sequence
from typing import Final

from k31ctl.catalog.store import Kind, Store

_VERSION: Final = r"v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:rc|post|dev)\d+)?)"
_IMAGES: Final = {
    "vllm": re.compile(rf"vllm-openai(?:_rocm)?:{_VERSION}"),
    "sglang": re.compile(rf"sglang(?:-rocm)?:{_VERSION}"),
    "tokenspeed": re.compile(rf"tokenspeed[\w-]*:{_VERSION}"),
}
_BRANCHES: Final = {
    "vllm": re.compile(r"vllm-openai(?:_rocm|-rocm)?:((?:[\w.]+-)?nightly|main)(?![\w.])"),
    "sglang": re.compile(r"/sglang(?:-rocm)?:(nightly|main|dev)(?![\w.])"),
}
_K31_BRANCHES: Final = {"sglang": re.compile(r"/sglang(?:-rocm)?:[\w.-]*(kimi-k31-pro)\b")}
_TITLE: Final = re.compile(r"^# .{1,80} with (\w+) ([\w.-]+) on .+\)$", re.MULTILINE)
_BRANCH: Final = "main"
_K31: Final = re.compile(r"kimi[-_ ]?k3[.]?1", re.IGNORECASE)
_K3: Final = re.compile(r"kimi[-_ ]?k3(?![\d.])", re.IGNORECASE)


def engine_version(engine: str, images: Sequence[str], installs: Sequence[str]) -> str:
    """Return the version that an image's tag or a requirement names, empty where none does."""
    for image in images:
        found = _IMAGES[engine].search(image) if engine in _IMAGES else None
        if found is not None:
            return found[1]
        own = _K31_BRANCHES[engine].search(image) if engine in _K31_BRANCHES else None
        if own is not None:
            return own[1]
        if engine in _BRANCHES and _BRANCHES[engine].search(image) is not None:
            return _BRANCH
    pinned = re.compile(rf"^{re.escape(engine)}(?:\[[\w,-]*\])?==\s*([\w.]+)$")
    for requirement in installs:
        found = pinned.match(requirement)
        if found is not None:
            return found[1]
    return ""


def written_version(engine: str, text: str) -> str:
    """Return the version in the title that ``serve`` writes over its files, empty without one."""
    found = _TITLE.search(text[:4096])
    return found[2] if found is not None and found[1] == engine else ""


def model_id(store: Store, name: str) -> str:
    """Return the profile that a repository or folder stands for by its name, empty where none."""
    if name in store.paths(Kind.MODELS):
        return name
    if _K31.search(name):
        return "kimi-k3.1-pro"
    if _K3.search(name):
        return "kimi-k3"
    if len(name.split("/")) != 2:  # noqa: PLR2004
        return ""
    last = name.rpartition("/")[2].casefold()
    return next((i for i in store.ids(Kind.MODELS) if i.casefold() == last), "")
