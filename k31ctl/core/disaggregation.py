"""Prefill and decode on instances of their own: what it gives, and whether one pool gives more."""

from math import exp, sqrt
from typing import Literal

from k31ctl.core.estimate import Estimate
from k31ctl.core.instance import Instance
from k31ctl.core.performance import INTERVAL, decode_parts_of, prefill_parts_of
from k31ctl.core.pool_loop import Loop, PoolRates, pool_loop
from k31ctl.core.pool_sizes import (
    Sizes,
    Sizing,
    answer_s,
    decode_requests_per_s,
    prefill_requests_per_s,
)
from k31ctl.core.service import Service, closed_loop, prefill_s
from k31ctl.core.speed_parameters import SpeedParameters, parameter
from k31ctl.core.step import spread_of
from k31ctl.core.transfer import Transfer, transfer
from k31ctl.core.workload import Workload
from k31ctl.values import frozen

EVEN = 0.05


@frozen
class Unified:
    """As many replicas of one deployment as the same GPUs hold, under the same load."""

    layout: str
    replicas: int
    num_gpus: int
    ttft_s: Estimate
    tpot_s: Estimate
    output_tok_s: Estimate


@frozen
class Disaggregation:
    """Two pools under one workload.

    ``ratio`` is how many prefill instances keep one full decode instance busy, ``best`` the
    smallest pools within the nodes that give most per GPU. ``prefill_load`` and ``decode_load``
    are the shares of what each pool could do.
    """

    workload: Workload
    prefill_layout: str
    decode_layout: str
    sizes: Sizes
    transfer: Transfer
    ttft_s: Estimate
    tpot_s: Estimate
    e2e_s: Estimate
    output_tok_s: Estimate
    output_tok_s_per_gpu: Estimate
    running: float
    wait_s: float
    prefill_s: float
    limit: Literal["prefill", "decode", "requests"]
    prefill_tok_s: float
    prefill_requests_per_s: float
    decode_requests_per_s: float
    prefill_load: float
    decode_load: float
    ratio: float
    best: Sizes | None
    unified: Unified | None

    @property
    def winner(self) -> Literal["disaggregated", "unified", "even", ""]:
        """Which gives more output tokens per second on each GPU; a twentieth is no difference."""
        if self.unified is None:
            return ""
        theirs = self.unified.output_tok_s.value / self.unified.num_gpus
        more = self.output_tok_s_per_gpu.value / theirs
        if abs(more - 1) <= EVEN:
            return "even"
        return "disaggregated" if more > 1 else "unified"


def disaggregated(
    prefill: Instance,
    decode: Instance,
    workload: Workload,
    *,
    prefill_instances: int,
    decode_instances: int,
    unified: Instance | None,
    num_nodes: int | None,
) -> Disaggregation:
    """Two pools in a closed loop, and beside them ``unified`` on as many GPUs.

    TTFT is the wait, the prefill, the transfer and the first decode step; TPOT is decoding that no
    prompt interrupts. ``num_nodes`` bounds the search for the best pools; None leaves it out.
    """
    assert workload.concurrency is not None
    num_gpus = prefill_instances * prefill.num_gpus + decode_instances * decode.num_gpus
    parameters = decode.parts.speed
    moved = transfer(
        parameters,
        node=decode.parts.node,
        prefill=prefill.case.layout,
        decode=decode.case.layout,
        rows=decode.built.rows,
        caches=decode.built.caches,
        prompt_tokens=workload.prompt_tokens,
        num_gpus=prefill.num_gpus + decode.num_gpus,
    )
    rates = _pool_rates(
        prefill,
        decode,
        workload,
        prefill_instances=prefill_instances,
        decode_instances=decode_instances,
        transfer_s=moved.seconds.value,
    )
    loop = pool_loop(rates, float(workload.concurrency))
    full = decode_requests_per_s(decode, workload)
    wanted = Sizing(prefill, decode, rates.prefill_requests_per_s, full)
    return _result(
        prefill,
        decode,
        workload,
        moved=moved,
        rates=rates,
        loop=loop,
        wanted=wanted,
        sizes=wanted.of(prefill_instances, decode_instances),
        best=wanted.best(num_nodes) if num_nodes is not None else None,
        unified=_unified(unified, workload, num_gpus) if unified else None,
    )


def _pool_rates(
    prefill: Instance,
    decode: Instance,
    workload: Workload,
    *,
    prefill_instances: int,
    decode_instances: int,
    transfer_s: float,
) -> PoolRates:
    alone, _ = prefill_s(
        prefill.step,
        requests=1,
        prompt_tokens=workload.uncached_tokens,
        past_tokens=workload.prompt_tokens - workload.uncached_tokens,
        chunk_tokens=prefill.case.chunk_tokens,
    )
    return PoolRates(
        prefill_instances=prefill_instances,
        prefill_s=alone,
        prefill_requests_per_s=prefill_requests_per_s(prefill, workload),
        between_s=transfer_s,
        decode_s=lambda running: answer_s(decode, workload, running),
        decode_groups=decode_instances * decode.case.layout.dp,
        most_running=decode.most_running,
    )


def _unified(unified: Instance, workload: Workload, num_gpus: int) -> Unified | None:
    """Replicas of one deployment on the same GPUs; each takes its part of the requests."""
    replicas = num_gpus // unified.num_gpus
    if replicas < 1 or workload.concurrency is None:
        return None
    groups = replicas * unified.case.layout.dp
    service = closed_loop(
        unified.step,
        concurrency=max(1.0, workload.concurrency / groups),
        most_running=unified.most_running,
        prompt_tokens=workload.prompt_tokens,
        uncached_tokens=workload.uncached_tokens,
        output_tokens=workload.output_tokens,
        positions=unified.case.positions,
        tokens_per_step=unified.case.tokens_per_step,
        chunk_tokens=unified.case.chunk_tokens,
        staggered_fraction=float(unified.case.engine.staggered),
    )
    groups = min(groups, workload.concurrency)
    spread = _spread(unified, unified, workload, service)
    return Unified(
        layout=unified.case.layout.text,
        replicas=replicas,
        num_gpus=replicas * unified.num_gpus,
        ttft_s=_estimate(unified.parts.speed, "ttft_s", service.ttft_s, spread),
        tpot_s=_estimate(unified.parts.speed, "tpot_s", service.tpot_s, spread),
        output_tok_s=_estimate(
            unified.parts.speed,
            "output_tok_s",
            groups * service.requests_per_s * workload.output_tokens,
            spread,
        ),
    )


def _result(
    prefill: Instance,
    decode: Instance,
    workload: Workload,
    *,
    moved: Transfer,
    rates: PoolRates,
    loop: Loop,
    wanted: Sizing,
    sizes: Sizes,
    best: Sizes | None,
    unified: Unified | None,
) -> Disaggregation:
    parameters, output = decode.parts.speed, workload.output_tokens
    answer = rates.decode_s(loop.running)
    first_step = answer / max(1.0, (output - 1) / decode.case.tokens_per_step)
    ttft = loop.wait_s + rates.prefill_s + moved.seconds.value + first_step
    running = _running(loop, rates, moved.seconds.value, workload)
    both = _spread(prefill, decode, workload, running)
    rate = _estimate(parameters, "output_tok_s", loop.requests_per_s * output, both)
    return Disaggregation(
        workload=workload,
        prefill_layout=prefill.case.layout.text,
        decode_layout=decode.case.layout.text,
        sizes=sizes,
        transfer=moved,
        ttft_s=_estimate(parameters, "ttft_s", ttft, both),
        tpot_s=_estimate(parameters, "tpot_s", answer / max(1, output - 1), both),
        e2e_s=_estimate(parameters, "e2e_s", ttft + answer, both),
        output_tok_s=rate,
        output_tok_s_per_gpu=rate.scaled(1 / sizes.num_gpus),
        running=loop.running * rates.decode_groups,
        wait_s=loop.wait_s,
        prefill_s=rates.prefill_s,
        limit=loop.limit,
        prefill_tok_s=rates.prefill_requests_per_s * workload.uncached_tokens,
        prefill_requests_per_s=rates.prefill_requests_per_s,
        decode_requests_per_s=wanted.decode_rate,
        prefill_load=loop.requests_per_s / (sizes.prefill * rates.prefill_requests_per_s),
        decode_load=loop.requests_per_s / (sizes.decode * wanted.decode_rate),
        ratio=wanted.decode_rate / rates.prefill_requests_per_s,
        best=best,
        unified=unified,
    )


def _running(loop: Loop, rates: PoolRates, transfer_s: float, workload: Workload) -> Service:
    """The state of the pools in the words of a service, for the parts of its steps."""
    answer = rates.decode_s(loop.running)
    period = loop.wait_s + rates.prefill_s + transfer_s + answer
    return Service(
        running=loop.running,
        ttft_s=period - answer,
        tpot_s=answer / max(1, workload.output_tokens - 1),
        e2e_s=period,
        decode_s=answer,
        first_s=rates.prefill_s,
        prefill_s=rates.prefill_s,
        queue_s=loop.wait_s,
        period_s=period,
        requests_per_s=loop.requests_per_s,
    )


def _spread(prefill: Instance, decode: Instance, workload: Workload, service: Service) -> float:
    """Spread of a time that is half prefill and half decoding, whose parts err independently."""
    of_decode = spread_of(decode_parts_of(decode.case, decode.step, workload, service))
    parts, _ = prefill_parts_of(prefill.case, prefill.step, workload, service)
    return sqrt(of_decode**2 + spread_of(parts) ** 2) / 2


def _estimate(parameters: SpeedParameters, quantity: str, value: float, spread: float) -> Estimate:
    model = parameter(parameters.model_spread, quantity).value
    factor = exp(INTERVAL * sqrt(spread**2 + model**2))
    return Estimate(value=value, low=value / factor, high=value * factor)
