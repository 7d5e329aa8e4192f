"""Ways out of what does not fit: shorter, fewer, smaller rows, more nodes, other tiers."""

from dataclasses import replace

from k31ctl.core.deployment import Deployment, cell_of, deployment, longest_context
from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.layout_rules import AskedLayout, flags, resolved
from k31ctl.core.request import Parts, PlanRequest
from k31ctl.errors import RefusedError, UsageError

MOST_NODES = 16
SHORTEST_TOKENS = 1024


def remedies(parts: Parts, request: PlanRequest, built: Deployment) -> tuple[str, ...]:
    """Ways out of what does not fit: shorter, fewer, smaller rows, more nodes, other tiers."""
    found = []
    context, batch = max(request.contexts), max(request.batches)
    per_instance = -(-batch // built.layout.dp)
    shorter = longest_context(built.pool, context, per_instance)
    if SHORTEST_TOKENS <= shorter < context:
        found.append(f"--context {shorter} holds {batch} at once")
    fewer = built.pool.max_requests(context) * built.layout.dp
    if fewer and fewer < batch:
        found.append(f"--batch {fewer} holds at {context:,} tokens")
    if built.rows.kv_format is KvFormat.BF16 and KvFormat.FP8 in parts.engine.cache.formats:
        smaller = replace(request, kv_dtype=KvFormat.FP8)
        if _fits(parts, smaller):
            found.append("--kv-dtype fp8 makes it fit")
    nodes = _nodes_needed(parts, request)
    if nodes is not None:
        found.append(nodes)
    if not found and parts.model.experts is not None and request.offload is None:
        found.append("--offload host shows what keeping experts in host memory costs")
    return tuple(found)


def _fits(parts: Parts, request: PlanRequest) -> bool:
    try:
        built = deployment(parts, request)
    except (RefusedError, UsageError):
        return False
    return all(
        cell_of(parts, built, context, batch).fits
        for context in request.contexts
        for batch in request.batches
    )


def _nodes_needed(parts: Parts, request: PlanRequest) -> str | None:
    """The fewest nodes, up to 16, on which the engine's usual layout holds all that was asked."""
    if request.kv_memory_bytes is not None or request.offload is not None:
        return None
    usual_differs = any((request.layout.tp, request.layout.pp, request.layout.dp))
    for nodes in range(request.layout.nodes + (not usual_differs), MOST_NODES + 1):
        asked = AskedLayout(nodes=nodes, tp=None, pp=None, dp=None, ep=None, dcp=request.layout.dcp)
        wider = replace(request, layout=asked)
        if _fits(parts, wider):
            layout = resolved(asked, model=parts.model, engine=parts.engine, node=parts.node)
            if nodes == request.layout.nodes:
                return f"{flags(layout)} fits on as many nodes"
            return f"--nodes {nodes} fits as {layout.text}"
    return None
