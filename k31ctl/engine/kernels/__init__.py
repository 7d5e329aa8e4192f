"""Kernels in Triton, each beside the plain function that it must equal, and when they are used.

Nothing here imports Triton: a kernel's own file does, once it is known to be used. Triton launches
on the current device, whichever its tensors are on: each launch makes theirs the current one.
"""

import os
from functools import cache
from importlib.util import find_spec

from k31ctl.engine.tensors import Kernels, Target
from k31ctl.errors import InputError
from k31ctl.values import frozen

_INTERPRETED = "TRITON_INTERPRET"


@frozen
class Choice:
    """Whether the kernels compute, and the reason in words."""

    uses_triton: bool
    because: str


def choice(target: Target) -> Choice:
    """What a model on this target computes with; raises InputError where Triton was asked in vain.

    A kernel that fails later raises: plain torch never takes its place in silence.
    """
    if target.device.type == "meta":
        return Choice(uses_triton=False, because="nothing is computed: there are no values")
    if target.kernels is Kernels.PLAIN:
        return Choice(uses_triton=False, because="plain torch, as asked")
    lacks = _lacks(target)
    if lacks is None:
        how = "interpreted on a CPU" if target.device.type == "cpu" else f"on {target.device}"
        return Choice(uses_triton=True, because=f"Triton, {how}")
    if target.kernels is Kernels.TRITON:
        raise InputError(
            f"Triton kernels cannot run: {lacks}",
            where=f"kernels on {target.device}",
            remedy="leave the choice to the engine, or ask for plain torch",
        )
    return Choice(uses_triton=False, because=f"plain torch, because {lacks}")


@cache
def _is_installed() -> bool:
    """Whether Triton is here; every activation asks, and looking for a package takes long."""
    return find_spec("triton") is not None


def _lacks(target: Target) -> str | None:
    """What is missing for Triton; on a CPU it is interpreted for tests alone, when told to."""
    if not _is_installed():
        return "triton is not installed (pip install 'k31ctl[kernels]')"
    is_asked = target.kernels is Kernels.TRITON and os.environ.get(_INTERPRETED) == "1"
    if target.device.type != "cuda" and not is_asked:
        return f"its kernels need a GPU, and this is {target.device}"
    return None
