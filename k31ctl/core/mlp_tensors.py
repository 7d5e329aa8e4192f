"""Which tensors a layer's feed-forward part has: one gated MLP, or a router and its experts.

Shapes are [out, in], as stored.
"""

from dataclasses import replace

from k31ctl.core.linear_layers import stored
from k31ctl.core.model import Experts
from k31ctl.core.tensor_block import Part, TensorBlock
from k31ctl.core.tensors import Group, Shard, TensorTemplate

DENSE: Part = (Group.DENSE_MLP, Shard.DENSE)
SHARED: Part = (Group.SHARED_EXPERTS, Shard.SHARED)
_ROUTED: Part = (Group.EXPERT_VALUES, Shard.EXPERT)
_ROUTER: Part = (Group.ROUTER, Shard.REPLICATED)
_LATENT: Part = (Group.LATENT_MOE, Shard.REPLICATED)


def gated_mlp(block: TensorBlock, part: Part, *, hidden: int, width: int) -> list[TensorTemplate]:
    """The three matrices of a gated MLP."""
    return [
        *block.linear("gate_proj", (width, hidden), part),
        *block.linear("up_proj", (width, hidden), part),
        *block.linear("down_proj", (hidden, width), part),
    ]


def routed_experts(
    block: TensorBlock, experts: Experts, *, names: tuple[str, str, str]
) -> list[TensorTemplate]:
    """The three matrices of every routed expert, named gate, up and down in that order."""
    gate, up, down = names
    width, hidden = experts.moe_intermediate_size, experts.hidden_size
    inside = block.inside("experts.{expert}")
    scales = Group.MTP if block.prediction else Group.EXPERT_SCALES
    found: list[TensorTemplate] = []
    for name, shape in ((gate, (width, hidden)), (up, (width, hidden)), (down, (hidden, width))):
        one = inside.tensor(f"{name}.weight", shape, _ROUTED)
        one = replace(one, num_experts=experts.num_experts)
        found += stored(one, experts.format, scale_group=scales)
    return found


def router(block: TensorBlock, *, num_experts: int, hidden: int) -> list[TensorTemplate]:
    """The score of every expert, and the bias that only the choice sees."""
    return [
        block.tensor("gate.weight", (num_experts, hidden), _ROUTER),
        block.tensor("gate.e_score_correction_bias", (num_experts,), _ROUTER, dtype="F32"),
    ]


def latent_moe(
    block: TensorBlock, *, hidden: int, latent: int, normed: bool
) -> list[TensorTemplate]:
    """The way down to the width of the routed experts and back, which every rank keeps whole."""
    found = [
        block.tensor("routed_expert_down_proj.weight", (latent, hidden), _LATENT),
        block.tensor("routed_expert_up_proj.weight", (hidden, latent), _LATENT),
    ]
    if normed:
        found.append(block.tensor("routed_expert_norm.weight", (latent,), _LATENT))
    return found
