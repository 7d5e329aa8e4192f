"""Tensors of one part of a model: what they have in common is said once."""

from dataclasses import replace
from math import prod

from k31ctl.core.linear_layers import stored
from k31ctl.core.model import WeightFormat
from k31ctl.core.tensors import Group, Shard, TensorTemplate
from k31ctl.values import frozen

Part = tuple[Group, Shard]


@frozen
class TensorBlock:
    """The start of the names, the layers, and how linear layers are stored there.

    In ``prediction`` layers every tensor belongs to multi-token prediction, and none is active.
    """

    stem: str
    layers: tuple[int, ...]
    linear_format: WeightFormat = WeightFormat.BF16
    prediction: bool = False
    assumed: bool = False

    def inside(self, name: str) -> "TensorBlock":
        """The block of a module within this one."""
        return replace(self, stem=f"{self.stem}{name}.")

    def as_assumed(self) -> "TensorBlock":
        """The same block, for tensors whose shape or type is assumed."""
        return replace(self, assumed=True)

    def tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        part: Part,
        *,
        dtype: str = "BF16",
        params: int | None = None,
    ) -> TensorTemplate:
        """One tensor in every layer of the block; every element is a parameter unless told."""
        group, shard = part
        return TensorTemplate(
            name=self.stem + name,
            shape=shape,
            dtype=dtype,
            group=Group.MTP if self.prediction else group,
            shard=shard,
            params=prod(shape) if params is None else params,
            layers=self.layers,
            active=not self.prediction,
            assumed=self.assumed,
        )

    def linear(self, name: str, shape: tuple[int, int], part: Part) -> tuple[TensorTemplate, ...]:
        """The tensors of a linear layer in the block's format."""
        return stored(self.tensor(f"{name}.weight", shape, part), self.linear_format)
