"""Tensors by the checkpoint's names, and the device and type that the engine computes in."""

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import field
from enum import StrEnum
from typing import Final

import torch
from torch import Tensor

from k31ctl.errors import InputError
from k31ctl.values import frozen

DTYPES: Final = {
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F16": torch.float16,
    "U8": torch.uint8,
}


class Kernels(StrEnum):
    """Who computes what torch is slow at: whoever can here, torch alone, or Triton or nobody."""

    AUTO = "auto"
    PLAIN = "plain"
    TRITON = "triton"


@frozen
class Target:
    """Where a model's weights go: their type, their device, and what computes with them.

    ``forms`` counts how its matrices are kept.
    """

    dtype: torch.dtype
    device: torch.device
    kernels: Kernels = Kernels.AUTO
    forms: Counter[str] = field(default_factory=Counter, compare=False)

    def weight(self, tensor: Tensor) -> Tensor:
        """A weight in the type of the activations.

        Always a copy: a tensor that is still mapped ends the process when its file is cut short.
        """
        return tensor.to(self.device, self.dtype, copy=True)

    def exact(self, tensor: Tensor) -> Tensor:
        """A small tensor in float32: norms, biases, taps and decays are never rounded to bf16."""
        return tensor.to(self.device, torch.float32, copy=True)


class Tensors:
    """The tensors under one prefix; each is held against the shape that the model needs."""

    def __init__(
        self, read: Callable[[str], Tensor], names: Container[str], *, prefix: str = ""
    ) -> None:
        self._read, self._names, self.prefix = read, names, prefix

    def __getitem__(self, name: str) -> Tensor:
        """A tensor of whatever shape."""
        return self._read(self.prefix + name)

    def __contains__(self, name: str) -> bool:
        """Whether there is one; nothing is read."""
        return f"{self.prefix}{name}" in self._names

    def inside(self, name: str) -> "Tensors":
        """The tensors of a part."""
        return Tensors(self._read, self._names, prefix=f"{self.prefix}{name}.")

    def take(self, name: str, *shape: int) -> Tensor:
        """One tensor of exactly this shape; raises InputError where it is missing or another."""
        if name not in self:
            raise InputError(
                f"the tensor {self.prefix}{name} is missing: this is not the whole model",
                where="the checkpoint",
                remedy="k31ctl inspect lists what is missing; fetch the rest of the checkpoint",
            )
        found = self[name]
        if tuple(found.shape) != shape:
            raise InputError(
                f"{self.prefix}{name} is {list(found.shape)}, not {list(shape)}",
                where="the checkpoint",
                remedy="use the config.json that belongs to these weights",
            )
        return found
