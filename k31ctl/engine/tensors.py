"""Tensors by the checkpoint's names, and the device and type that the engine computes in."""

from collections import Counter
from collections.abc import Callable, Container, Sequence
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
_MXFP4_ENDS: Final = ("weight_packed", "weight_scale")
_E8M0_NAN: Final = 255


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
        """One tensor of exactly this shape.

        Raises InputError where it is missing, another, or holds what is no finite number.
        """
        return self.take_one_of(name, shape)

    def take_one_of(self, name: str, *shapes: tuple[int, ...]) -> Tensor:
        """The same, of one of these shapes."""
        if name not in self:
            raise InputError(
                f"the tensor {self.prefix}{name} is missing: this is not the whole model",
                where="the checkpoint",
                remedy="k31ctl inspect lists what is missing; fetch the rest of the checkpoint",
            )
        found = self[name]
        if tuple(found.shape) not in shapes:
            needed = " or ".join(str(list(shape)) for shape in shapes)
            raise InputError(
                f"{self.prefix}{name} is {list(found.shape)}, not {needed}",
                where="the checkpoint",
                remedy="use the config.json that belongs to these weights",
            )
        if name.endswith(_MXFP4_ENDS) is found.is_floating_point():
            raise InputError(
                f"{self.prefix}{name} is stored as {str(found.dtype).removeprefix('torch.')}",
                where="the checkpoint",
                remedy="MXFP4 is stored as uint8, all else in floating point",
            )
        if not _is_finite(found, is_scale=name.endswith("weight_scale")):
            raise InputError(
                f"{self.prefix}{name} holds a value that is no finite number",
                where="the checkpoint",
                remedy="k31ctl verify --deep lists all such tensors; fetch them again",
            )
        return found


def _is_finite(tensor: Tensor, *, is_scale: bool) -> bool:
    """Whether every value is a number; without temporaries of the tensor's size."""
    if tensor.is_meta or not tensor.numel():
        return True
    if not tensor.is_floating_point():
        return not is_scale or int(tensor.max()) < _E8M0_NAN
    return all(bool(end.isfinite()) for end in tensor.aminmax())


def joined(parts: Sequence[Tensor]) -> Tensor:
    """One above the other, as ``torch.cat`` does.

    Arithmetic on tensors without values loads torch's compiler: two seconds and 75 MiB. Copies do
    not.
    """
    whole = parts[0].new_empty(sum(map(len, parts)), *parts[0].shape[1:])
    for part, place in zip(parts, whole.split([len(part) for part in parts]), strict=True):
        place.copy_(part)
    return whole
