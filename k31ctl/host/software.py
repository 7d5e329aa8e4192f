"""Versions of the engines and of what they need, in this interpreter or a named one."""

import os
import re
import sys
from typing import Any, Final

from k31ctl.core.host import Software, Why
from k31ctl.host.probe import Missed, Probe
from k31ctl.outside_json import parsed

DISTRIBUTIONS: Final = (
    "vllm",
    "sglang",
    "tokenspeed",
    "tensorrt-llm",
    "torch",
    "transformers",
    "tiktoken",
    "blobfile",
    "flashinfer-python",
    "nixl",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "runai-model-streamer",
    "fastsafetensors",
    "instanttensor",
)
_DIST_INFO: Final = re.compile(r"([^-]+)-([^-]+)\.dist-info")
_ASK: Final = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def software(probe: Probe, interpreter: str | None) -> Software:
    """Installed distributions; raises Missed where a named interpreter does not tell."""
    if interpreter is None:
        return Software(interpreter=sys.executable, distributions=_here())
    told = probe.run(interpreter, "-I", "-B", "-c", _ASK, *DISTRIBUTIONS)
    try:
        found: Any = parsed(told)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Missed(Why.FAILED, f"{interpreter} is not a Python")
    return Software(
        interpreter=interpreter, distributions={str(k): str(v) for k, v in found.items()}
    )


def _here() -> dict[str, str]:
    """Versions in this interpreter, by the names of their folders: quicker than the library."""
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208  names, not paths
        except OSError:
            continue
        for name in names:
            told = _DIST_INFO.fullmatch(name)
            distribution = re.sub(r"[-_.]+", "-", told[1]).lower() if told else ""
            if told and distribution in DISTRIBUTIONS:
                found.setdefault(distribution, told[2])
    return found
