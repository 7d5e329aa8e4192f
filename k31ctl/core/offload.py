"""Experts kept in host memory or on disk: what stays on the GPU, what moves, how slow it gets."""

from enum import StrEnum

from k31ctl.core.hardware import Node
from k31ctl.core.layout import Layout
from k31ctl.core.model import Model
from k31ctl.core.tensors import Shard
from k31ctl.core.weights import StageWeights
from k31ctl.errors import RefusedError
from k31ctl.values import frozen


class Tier(StrEnum):
    """Where experts that are not resident live."""

    HOST = "host"
    NVME = "nvme"


@frozen
class Offload:
    """What offloading costs, over the whole deployment, at one token per step.

    ``max_tok_s`` is a ceiling from transfer alone, uniform routing and no expert cache beyond the
    resident ones; arithmetic, latency and imbalance only lower it.
    """

    tier: Tier
    resident_experts: int
    num_experts: int
    resident_bytes_per_gpu: int
    offloaded_bytes: int
    offloaded_bytes_per_node: int
    tier_bytes_per_node: int
    fits_tier: bool
    bytes_per_token: float
    bandwidth_bytes_per_s: float
    max_tok_s: float
    max_tok_s_at_batch: float
    batch: int
    source: str


def resident_expert_bytes(weights: StageWeights, *, resident: int, num_experts: int) -> int:
    """Bytes of the experts that stay on a rank of the stage, of ``num_experts`` in all."""
    return weights.by_shard[Shard.EXPERT] * resident // num_experts


def offload(
    model: Model,
    *,
    tier: Tier,
    resident: int,
    stages: tuple[StageWeights, ...],
    layout: Layout,
    node: Node,
    batch: int,
) -> Offload:
    """The cost of keeping ``resident`` experts of each layer on the GPUs and the rest elsewhere.

    Symbols: E experts, k chosen per token, r resident, B tokens per step.
    Formula: moved per step = layers * E (1 - (1 - k/E)^B) (1 - r/E) * expert bytes.
    Raises RefusedError where the node has no such tier.
    """
    experts = model.experts
    if experts is None:
        raise RefusedError(
            f"{model.name} has no routed experts to offload",
            where="--offload",
            remedy="leave --offload out",
        )
    E, k = experts.num_experts, experts.num_experts_per_tok
    all_bytes = sum(t.total_bytes for t in model.templates if t.shard is Shard.EXPERT)
    layer_bytes = all_bytes / max(1, len(model.moe_layers))
    missing = 1 - resident / E

    def moved(tokens: int) -> float:
        distinct = E * (1 - (1 - k / E) ** tokens)
        return len(model.moe_layers) * distinct / E * layer_bytes * missing

    bandwidth, room, source = _tier(tier, node, layout)
    offloaded = int(all_bytes * missing)
    per_node = -(-offloaded // layout.nodes)
    step = moved(1)
    return Offload(
        tier=tier,
        resident_experts=resident,
        num_experts=E,
        resident_bytes_per_gpu=max(
            resident_expert_bytes(s, resident=resident, num_experts=E) for s in stages
        ),
        offloaded_bytes=offloaded,
        offloaded_bytes_per_node=per_node,
        tier_bytes_per_node=room,
        fits_tier=per_node <= room,
        bytes_per_token=step,
        bandwidth_bytes_per_s=bandwidth,
        max_tok_s=bandwidth / step if step else float("inf"),
        max_tok_s_at_batch=batch * bandwidth / moved(batch) if step else float("inf"),
        batch=batch,
        source=source,
    )


def _tier(tier: Tier, node: Node, layout: Layout) -> tuple[float, int, str]:
    gpus = min(layout.world, layout.num_gpus)
    if tier is Tier.HOST:
        rate = node.pcie.bandwidth_bytes_per_s * (1 if node.pcie.per == "node" else gpus)
        return rate, node.host_memory_bytes, f"{node.id}: host link, one way, {gpus} GPUs"
    if node.disks is None:
        raise RefusedError(
            f"{node.id} defines no local disks",
            where="--offload nvme",
            remedy="use --offload host, or add disks to a profile of your own",
        )
    rate = node.disks.read_bandwidth_bytes_per_s * layout.nodes
    return (
        rate,
        node.disks.num_disks * node.disks.capacity_bytes,
        f"{node.id}: local disks, {layout.nodes} nodes",
    )
