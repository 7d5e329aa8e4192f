"""What one GPU, its links and its engine reach: plain rates from parameters and profiles."""

from dataclasses import replace

from k31ctl.core.engine import Engine
from k31ctl.core.hardware import Link, Node
from k31ctl.core.layout import Layout
from k31ctl.core.speed_parameters import Parameter, SpeedParameters, parameter
from k31ctl.values import frozen

ACHIEVED_SHARE = 0.85
UNMEASURED_REDUCE = 0.75
UNMEASURED_EXCHANGE = 0.6


@frozen
class Rates:
    """Rates in base units. ``known`` holds, by part of a step, what its time rests on."""

    peak_bytes_per_s: float
    dense_bytes_per_s: float
    expert_bytes_per_s: float
    attention_bytes_per_s: float
    state_bytes_per_s: float
    dense_flops_per_s: float
    expert_flops_per_s: float
    prefill_flops_per_s: float
    expert_prefill_flops_per_s: float
    peak_flops_per_s: float
    layer_overhead_s: float
    prefill_layer_overhead_s: float
    own_launch_fraction: float
    step_overhead_s: float
    all_reduce_s: float
    all_reduce_bytes_per_s: float
    moe_reduce_s: float
    moe_reduce_bytes_per_s: float
    all_to_all_s: float
    all_to_all_bytes_per_s: float
    link_peak_bytes_per_s: float
    hop_s: float
    hop_bytes_per_s: float
    activation_passes: float
    routing_concentration: float
    known: dict[str, Parameter]


def expert_kernel(node: Node, engine: Engine) -> str:
    """The family of kernels that runs 4-bit experts on this GPU under this engine.

    Source: SGLang 0.5.23 srt/arg_groups/model_overrides/kimi_k3.py; vLLM 0.33.0
    fused_moe/oracle/mxfp4.py.
    """
    match node.gpu.architecture:
        case "sm_100" | "sm_103":
            return "trtllm-w4a8"
        case "gfx950":
            return "aiter-w4a8"
        case "cpu":
            return "processor"
        case _:
            return "marlin-w4a16"


def rates(
    parameters: SpeedParameters,
    *,
    node: Node,
    engine: Engine,
    layout: Layout,
    kernel: str | None = None,
) -> Rates:
    """Settle every rate for one deployment; ``kernel`` names expert kernels other than the usual.

    Where a profile has no measured bandwidth, 0.85 of the peak stands in; a link without measured
    collectives is taken at 0.75 of its rate.
    """
    gpu = node.gpu
    arch = gpu.architecture
    peak = gpu.memory_bandwidth_bytes_per_s
    achieved = gpu.achieved_bandwidth_bytes_per_s or ACHIEVED_SHARE * peak
    expert_read = gpu.expert_bandwidth_bytes_per_s or achieved
    bf16 = gpu.matmul["bf16"]
    matmul = gpu.achieved_matmul.get("bf16", ACHIEVED_SHARE * bf16)
    # Kernels for 4-bit experts that nobody measured reach about 0.4 of the low-precision rate.
    expert_matmul = gpu.expert_matmul_flops_per_s or 0.4 * gpu.matmul.get("mxfp4", bf16)
    chosen = kernel or expert_kernel(node, engine)
    p = parameters
    get = _Found(engine, arch, pipeline=layout.pp > 1, across_nodes=layout.world > node.num_gpus)
    read = get(p.dense_read_fraction)
    expert = parameter(p.expert_read_fraction, chosen)
    attention, state = get(p.attention_read_fraction), get(p.state_read_fraction)
    dense_matmul = get(p.matmul_fraction)
    expert_flops = parameter(p.expert_matmul_fraction, chosen)
    overhead, factor = get(p.layer_overhead_s), get(p.engine_overhead_factor)
    launch, step = get(p.prefill_layer_overhead_s), get(p.step_overhead_s)
    own_launch = get(p.own_launch_fraction).value if engine.one_by_one else 0.0
    attention_group = _collective(p, get, node, layout.attention_tp)
    moe_group = _collective(p, get, node, layout.expert_world)
    hop = get(p.pipeline_hop_s)
    passes = get(p.activation_passes)
    concentration = parameter(p.routing_concentration)
    stage_gpus = layout.world // layout.pp
    inside = stage_gpus * 2 <= max(node.scale_up_domain_gpus, node.num_gpus)
    return Rates(
        peak_bytes_per_s=peak,
        dense_bytes_per_s=achieved * read.value,
        expert_bytes_per_s=expert_read * expert.value,
        attention_bytes_per_s=achieved * attention.value,
        state_bytes_per_s=achieved * state.value,
        dense_flops_per_s=matmul,
        expert_flops_per_s=expert_matmul,
        prefill_flops_per_s=matmul * dense_matmul.value,
        expert_prefill_flops_per_s=expert_matmul * expert_flops.value,
        peak_flops_per_s=bf16,
        layer_overhead_s=overhead.value * factor.value,
        prefill_layer_overhead_s=launch.value,
        own_launch_fraction=own_launch,
        step_overhead_s=step.value,
        all_reduce_s=attention_group.small_s,
        all_reduce_bytes_per_s=attention_group.bytes_per_s,
        moe_reduce_s=moe_group.small_s,
        moe_reduce_bytes_per_s=moe_group.bytes_per_s,
        all_to_all_s=moe_group.exchange_s,
        all_to_all_bytes_per_s=moe_group.exchange_bytes_per_s,
        link_peak_bytes_per_s=moe_group.peak_bytes_per_s,
        hop_s=hop.value,
        hop_bytes_per_s=_hop_bytes_per_s(node, inside=inside),
        activation_passes=passes.value,
        routing_concentration=concentration.value,
        known={
            "dense": read,
            "experts": expert,
            "attention": attention,
            "index": attention,
            "state": state,
            "activations": passes,
            "launch": _joined(overhead, factor),
            "step": step,
            "all_reduce": moe_group.known,
            "all_to_all": moe_group.known,
            "pipeline": hop,
            "draft": read,
            "dense_matmul": dense_matmul,
            "expert_matmul": expert_flops,
            "prefill_launch": launch,
        },
    )


def _joined(first: Parameter, second: Parameter) -> Parameter:
    """What a product of two parameters rests on."""
    spread = (first.spread**2 + second.spread**2) ** 0.5
    return replace(first, spread=spread, source=f"{first.source}; {second.source}")


class _Found:
    """Looks a table up by release, engine and what it runs on, and then by its default."""

    def __init__(
        self, engine: Engine, architecture: str, *, pipeline: bool, across_nodes: bool
    ) -> None:
        name = engine.engine
        self._engine = name
        self._keys = [
            engine.id,
            *([f"{name}/pipeline"] if pipeline else []),
            *([f"{name}/nodes"] if across_nodes else []),
            f"{name}/{architecture}",
            name,
            architecture,
        ]

    def __call__(self, table: dict[str, Parameter]) -> Parameter:
        return parameter(table, *self._keys)

    def of_link(self, table: dict[str, Parameter], kind: str) -> Parameter:
        """The entry for a kind of link under this engine, else for the link alone."""
        return parameter(table, f"{self._engine}/{kind}", kind)


@frozen
class _Collective:
    small_s: float
    bytes_per_s: float
    exchange_s: float
    exchange_bytes_per_s: float
    peak_bytes_per_s: float
    known: Parameter


def _collective(p: SpeedParameters, get: _Found, node: Node, ranks: int) -> _Collective:
    """Collectives over so many ranks: inside a scale-up domain, or across the network too."""
    link = node.scale_up or node.pcie
    domain = max(node.scale_up_domain_gpus, node.num_gpus)
    fallback = parameter(p.small_all_reduce_s, link.kind)
    factor = get(p.all_reduce_factor)
    small = (link.small_all_reduce_s or fallback.value) * factor.value
    bandwidth = link.all_reduce_bytes_per_s or UNMEASURED_REDUCE * link.bandwidth_bytes_per_s
    exchange = link.all_to_all_bytes_per_s or UNMEASURED_EXCHANGE * link.bandwidth_bytes_per_s
    exchange_s = parameter(p.all_to_all_s, link.kind).value
    known = factor
    peak = link.bandwidth_bytes_per_s
    if ranks > node.num_gpus:
        wide = link if ranks <= domain else crossing(node.network)
        latency = get.of_link(p.network_all_reduce_s, wide.kind)
        if ranks > domain:
            # Engines' own kernels end where the scale-up link does: beyond it NCCL does the work.
            small = link.nccl_small_all_reduce_s or small
        small += latency.value
        known = latency
        if ranks > domain:
            # Each of the node's links carries its own part of a hierarchical all-reduce.
            wire = parameter(p.network_fraction, wide.kind).value
            wire *= wide.bandwidth_bytes_per_s
            links = node.num_gpus if wide.per == "gpu" else 1
            bandwidth, exchange = min(bandwidth, wire * links), min(exchange, wire)
            peak = wide.bandwidth_bytes_per_s
            exchange_s = parameter(p.all_to_all_s, wide.kind).value
    return _Collective(
        small_s=small,
        bytes_per_s=bandwidth,
        exchange_s=exchange_s,
        exchange_bytes_per_s=exchange,
        peak_bytes_per_s=peak,
        known=known,
    )


def crossing(network: Link | None) -> Link:
    """The network between nodes, or 10 GB/s of Ethernet where a profile knows none."""
    if network is not None:
        return network
    return Link(kind="rdma", bandwidth_bytes_per_s=1.25e9, per="node", direction="one-way")


def _hop_bytes_per_s(node: Node, *, inside: bool) -> float:
    link = (node.scale_up or node.pcie) if inside else crossing(node.network)
    return link.bandwidth_bytes_per_s
