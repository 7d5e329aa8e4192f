"""Versions of the engines and of what they need, in this interpreter or a named one."""

import importlib.metadata
import json
import sys
from typing import Any, Final

from k31ctl.core.host import Software, Why
from k31ctl.host.probe import Missed, Probe

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
        found: Any = json.loads(told)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Missed(Why.FAILED, f"{interpreter} is not a Python")
    return Software(
        interpreter=interpreter, distributions={str(k): str(v) for k, v in found.items()}
    )


def _here() -> dict[str, str]:
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
