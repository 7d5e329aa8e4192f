"""Deployments of packaged profiles under a load, straight to what the speed model says."""

from dataclasses import replace
from functools import cache
from typing import Any

from k31ctl.core.deployment import Deployment, deployment
from k31ctl.core.hardware import Gpu, Link, Node
from k31ctl.core.performance import Performance, performance
from k31ctl.core.prediction import Case, case_of
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.core.workload import Workload
from tests.core.deployments import asked, parts, speed

LOAD = Workload(
    prompt_tokens=8192,
    output_tokens=1024,
    cached_fraction=0.0,
    concurrency=16,
    rate_per_s=None,
)
# Room for every request: what the cache holds is no matter of most laws.
ROOMY = 1e9


@cache
def built(
    model_id: str = "kimi-k3", node_id: str = "8x-b300", engine: str = "vllm", **given: Any
) -> Deployment:
    """A deployment that is asked for by the names of its flags."""
    return deployment(parts(model_id, node_id, engine), asked(**given))


@cache
def case(
    model_id: str = "kimi-k3", node_id: str = "8x-b300", engine: str = "vllm", **given: Any
) -> Case:
    """What the speed model sees of that deployment, without a draft."""
    found = built(model_id, node_id, engine, **given)
    return case_of(parts(model_id, node_id, engine), found)


def served(
    found: Case,
    *,
    most_running: float = ROOMY,
    parameters: SpeedParameters | None = None,
    **load: Any,
) -> Performance:
    """A case under the usual load with some of its values replaced."""
    known = parameters or speed()
    workload = replace(LOAD, **load)
    return performance(found, found.step(known), known, workload, most_running=most_running)


def faster(
    node: Node,
    *,
    memory: float = 1.0,
    matmul: float = 1.0,
    link: float = 1.0,
    latency: float = 1.0,
) -> Node:
    """The node with rates multiplied and the latencies of its links divided."""
    return replace(
        node,
        gpu=_faster_gpu(node.gpu, memory=memory, matmul=matmul),
        scale_up=_faster_link(node.scale_up, link, latency) if node.scale_up else None,
        network=_faster_link(node.network, link, latency) if node.network else None,
        pcie=_faster_link(node.pcie, link, latency),
    )


def _faster_gpu(gpu: Gpu, *, memory: float, matmul: float) -> Gpu:
    return replace(
        gpu,
        memory_bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s * memory,
        achieved_bandwidth_bytes_per_s=_times(gpu.achieved_bandwidth_bytes_per_s, memory),
        expert_bandwidth_bytes_per_s=_times(gpu.expert_bandwidth_bytes_per_s, memory),
        matmul={name: rate * matmul for name, rate in gpu.matmul.items()},
        achieved_matmul={name: rate * matmul for name, rate in gpu.achieved_matmul.items()},
        expert_matmul_flops_per_s=_times(gpu.expert_matmul_flops_per_s, matmul),
    )


def _faster_link(link: Link, rate: float, latency: float) -> Link:
    return replace(
        link,
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * rate,
        all_reduce_bytes_per_s=_times(link.all_reduce_bytes_per_s, rate),
        all_to_all_bytes_per_s=_times(link.all_to_all_bytes_per_s, rate),
        small_all_reduce_s=_times(link.small_all_reduce_s, 1 / latency),
        nccl_small_all_reduce_s=_times(link.nccl_small_all_reduce_s, 1 / latency),
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
