"""Two pools of packaged models, as the command would make them."""

from dataclasses import replace
from typing import Any

from k31ctl.core.disaggregation import Disaggregation, disaggregated
from k31ctl.core.instance import Instance, instance
from k31ctl.core.workload import Workload
from tests.core.deployments import asked, parts


def load(
    concurrency: int = 64, *, prompt_tokens: int = 8192, output_tokens: int = 1024
) -> Workload:
    """A closed loop of one size of request."""
    return Workload(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        cached_fraction=0,
        concurrency=concurrency,
        rate_per_s=None,
    )


def one(
    workload: Workload,
    *,
    node_id: str = "8x-b300",
    engine: str = "sglang",
    draft: str | None = None,
    accepted: float | None = None,
    **sizes: Any,
) -> Instance:
    """One instance of Kimi K3; layout sizes by the names of their flags."""
    request = asked(**({"nodes": 1, "tp": 8} | sizes))
    request = replace(request, workload=replace(request.workload, accepted_tokens=accepted))
    return instance(parts("kimi-k3", node_id, engine, draft), request, request.layout, workload)


def pair(
    workload: Workload,
    *,
    prefill: Instance,
    decode: Instance,
    num_prefill: int = 1,
    num_decode: int = 1,
    num_nodes: int | None = None,
) -> Disaggregation:
    """Pools of these instances beside as many GPUs of the decode instance unified."""
    return disaggregated(
        prefill,
        decode,
        workload,
        prefill_instances=num_prefill,
        decode_instances=num_decode,
        unified=decode,
        num_nodes=num_nodes,
    )
