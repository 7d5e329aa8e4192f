"""Tensors as a checkpoint stores them, written once for all layers and experts that share a shape.

Half a million tensors of Kimi K3 are about seventy templates; names are spelled out on demand.
"""

from collections.abc import Iterator
from enum import StrEnum
from math import prod

from k31ctl.values import frozen

ELEMENT_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1, "I32": 4, "I64": 8}


class Group(StrEnum):
    """The part of the model that a tensor belongs to: the lines of the weight ledger."""

    EXPERT_VALUES = "routed experts, values"
    EXPERT_SCALES = "routed experts, scales"
    KDA_PROJECTIONS = "KDA projections"
    KDA_SMALL = "KDA small tensors"
    LATENT_ATTENTION = "latent attention"
    INDEXER = "indexer"
    SHARED_EXPERTS = "shared experts"
    LATENT_MOE = "latent MoE projections"
    ROUTER = "router"
    DENSE_MLP = "dense MLP"
    LAYER_NORMS = "layer norms and residual mixes"
    OUTPUT = "final norm and output mix"
    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"
    VISION = "vision tower"
    PROJECTOR = "projector"
    MTP = "multi-token prediction"


class Shard(StrEnum):
    """How a tensor is divided over the ranks of one pipeline stage."""

    REPLICATED = "replicated"
    ATTENTION = "attention heads"
    DENSE = "dense width"
    SHARED = "shared-expert width"
    EXPERT = "routed experts"
    VOCABULARY = "vocabulary"


class Place(StrEnum):
    """Which pipeline stage holds a tensor."""

    LAYER = "with its layer"
    FIRST = "first stage"
    LAST = "last stage"


@frozen
class TensorTemplate:
    """A family of equal tensors: ``{layer}`` and ``{expert}`` in the name are filled in.

    ``params`` counts the model's parameters in one tensor: scales count none, and two 4-bit
    values share a byte. ``active`` is false for what no text token multiplies (embedding, vision).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    group: Group
    shard: Shard
    params: int
    place: Place = Place.LAYER
    layers: tuple[int, ...] = ()
    num_experts: int = 0
    active: bool = True
    assumed: bool = False

    @property
    def tensor_bytes(self) -> int:
        """Bytes of one tensor of the family."""
        return prod(self.shape) * ELEMENT_BYTES[self.dtype]

    @property
    def tensors_per_layer(self) -> int:
        """How many of them one layer (or the model, where there is no layer) holds."""
        return max(1, self.num_experts)

    @property
    def num_tensors(self) -> int:
        """How many tensors the family has in the whole checkpoint."""
        return self.tensors_per_layer * (len(self.layers) if self.layers else 1)

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors of the family."""
        return self.num_tensors * self.tensor_bytes

    def names(self) -> Iterator[str]:
        """Every name of the family, layer by layer, expert by expert."""
        for layer in self.layers or (0,):
            name = self.name.replace("{layer}", str(layer))
            if not self.num_experts:
                yield name
                continue
            before, after = name.split("{expert}")
            for expert in range(self.num_experts):
                yield f"{before}{expert}{after}"
