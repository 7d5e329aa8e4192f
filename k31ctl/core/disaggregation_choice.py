"""Which layouts and how many instances two pools get, where not all of it was said."""

from dataclasses import dataclass

from k31ctl.core.asked_pools import AskedPool, AskedPools
from k31ctl.core.disaggregation import Disaggregation, disaggregated
from k31ctl.core.engine import DataParallel
from k31ctl.core.instance import Instance, instance
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.pool_sizes import best_sizes
from k31ctl.core.request import Parts, PlanRequest
from k31ctl.core.workload import Workload
from k31ctl.errors import RefusedError


def pool_layout(pool: AskedPool, parts: Parts) -> AskedLayout:
    """The layout of an instance with as many nodes as its sizes fill."""
    groups = parts.engine.layout.data_parallel is DataParallel.GROUPS
    tp = pool.tp or parts.node.num_gpus
    pp, dp = pool.pp or 1, pool.dp or 1
    world = tp * pp * (dp if groups else 1)
    return AskedLayout(
        nodes=-(-world // parts.node.num_gpus), tp=tp, pp=pp, dp=dp, ep=pool.ep, dcp=pool.dcp
    )


def usual_layouts(parts: Parts, *, num_nodes: int) -> tuple[AskedLayout, ...]:
    """Layouts that an instance may have on 1, 2, 4 and more nodes, with and without DCP."""
    found = []
    nodes = 1
    while nodes <= num_nodes:
        for dcp in (None, parts.node.num_gpus):
            found.append(AskedLayout(nodes=nodes, tp=None, pp=None, dp=None, ep=None, dcp=dcp))
        nodes *= 2
    return tuple(found)


def disaggregation(
    parts: Parts, request: PlanRequest, asked: AskedPools, workload: Workload
) -> Disaggregation:
    """Two pools as asked, what was left open chosen for most requests per second and GPU.

    The nodes of the request bound the choice; pools of a given size may go beyond them. The best
    of the usual layouts on as many GPUs stands beside them. Raises RefusedError where no two
    instances fit.
    """
    usual = _usual(parts, request, workload)
    num_nodes = request.layout.nodes
    choices = [
        choice
        for prefill in _instances(asked.prefill, parts, request, workload, usual)
        for decode in _instances(asked.decode, parts, request, workload, usual)
        for choice in _choices(prefill, decode, workload, asked, num_nodes=num_nodes)
    ]
    if not choices:
        raise RefusedError(
            "no two instances of this model fit on the nodes",
            where=f"--disaggregate, {num_nodes} x {parts.node.id}",
            remedy="give more --nodes: each pool needs an instance of its own",
            rule="disaggregation-fits",
            source="the memory model",
        )
    best = max(choices, key=lambda each: each.on(workload).output_tok_s_per_gpu.value)
    beside = [best.on(workload, unified=each, num_nodes=num_nodes) for each in usual]
    return max(beside, key=_unified_tok_s, default=best.on(workload, num_nodes=num_nodes))


@dataclass(frozen=True, slots=True)
class _Choice:
    """Two pools of settled sizes."""

    prefill: Instance
    decode: Instance
    num_prefill: int
    num_decode: int

    def on(
        self, workload: Workload, *, unified: Instance | None = None, num_nodes: int | None = None
    ) -> Disaggregation:
        taken = self.num_prefill * self.prefill.num_nodes + self.num_decode * self.decode.num_nodes
        return disaggregated(
            self.prefill,
            self.decode,
            workload,
            prefill_instances=self.num_prefill,
            decode_instances=self.num_decode,
            unified=unified,
            num_nodes=max(num_nodes, taken) if num_nodes is not None else None,
        )


def _choices(
    prefill: Instance, decode: Instance, workload: Workload, asked: AskedPools, *, num_nodes: int
) -> list[_Choice]:
    """The given sizes, or those that sustain most per GPU on the nodes; empty where none fit."""
    counts = _given(asked.prefill), _given(asked.decode)
    if None not in counts:
        return [_Choice(prefill, decode, counts[0] or 1, counts[1] or 1)]
    best = best_sizes(
        prefill,
        decode,
        workload,
        num_nodes=num_nodes,
        num_prefill=counts[0],
        num_decode=counts[1],
    )
    return [_Choice(prefill, decode, best.prefill, best.decode)] if best else []


def _unified_tok_s(found: Disaggregation) -> float:
    return found.unified.output_tok_s.value if found.unified else 0.0


def _given(pool: AskedPool | None) -> int | None:
    return pool.instances if pool else None


def _usual(parts: Parts, request: PlanRequest, workload: Workload) -> list[Instance]:
    """Usual layouts that fit; wider ones only where none of fewer nodes does."""
    found: list[Instance] = []
    for layout in usual_layouts(parts, num_nodes=request.layout.nodes):
        if found and layout.nodes > found[-1].case.layout.nodes:
            break
        try:
            found.append(instance(parts, request, layout, workload))
        except RefusedError:
            continue
    return found


def _instances(
    pool: AskedPool | None,
    parts: Parts,
    request: PlanRequest,
    workload: Workload,
    usual: list[Instance],
) -> list[Instance]:
    if pool is None or (pool.tp, pool.pp, pool.dp, pool.ep, pool.dcp) == (None,) * 5:
        return usual
    return [instance(parts, request, pool_layout(pool, parts), workload)]
