"""What a plan is asked for: numbers in base units, checked, as one request."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from k31ctl.api.bounds import (
    LEAST_USD,
    MOST_CELLS,
    MOST_ENTRIES,
    MOST_USD,
    MOST_USD_PER_HOUR,
    MOST_USD_PER_KWH,
)
from k31ctl.api.given import checked_range, checked_ratio, chosen, chosen_or_none, path_of, several
from k31ctl.api.load_request import asked_workload, contexts_of, simulation_request
from k31ctl.core.costing import CostRequest
from k31ctl.core.kv_cache import IndexFormat, KvFormat, StateDtype
from k31ctl.core.layout_rules import MOST_RANKS, AskedLayout
from k31ctl.core.offload import Tier
from k31ctl.core.ownership import OWNED
from k31ctl.core.prices import Term
from k31ctl.core.request import PlanRequest
from k31ctl.errors import UsageError


class PlanOptions(TypedDict, total=False):
    """The options of ``k31ctl plan`` that make a deployment and its load, under the same names.

    Lengths are in tokens, ``kv_memory`` in bytes per GPU, ``rate`` in requests per second, money
    in US dollars: ``price`` per GPU-hour, ``purchase`` per node, ``staff`` per year and
    ``electricity`` per kWh. None, and what is left out, is the option's own default.
    """

    nodes: int
    tp: int | None
    pp: int | None
    dp: int | None
    ep: int | None
    dcp: int | None
    context: int | Sequence[int] | None
    batch: int | Sequence[int] | None
    max_model_len: int | None
    kv_dtype: str | None
    index_dtype: str | None
    state_dtype: str
    kv_memory: int | None
    memory_fraction: float | None
    state_ratio: float | None
    prefix_caching: bool
    draft_tokens: int | None
    replay_ssm: bool
    state_slots: int | None
    chunk_tokens: int | None
    text_only: bool
    image: tuple[int, int] | None
    lora: int | None
    offload: str | None
    resident_experts: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    cached_fraction: float
    concurrency: int | None
    accepted_tokens: float | None
    rate: float | None
    trace: str | Path | None
    slo: str | None
    simulate: bool
    seed: int
    price: float | None
    provider: str | None
    term: str | None
    utilisation: float | None
    api: str | None
    purchase: float | None
    staff: float | None
    electricity: float | None


def plan_request(
    *,
    plays: bool = True,
    nodes: int = 1,
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    ep: int | None = None,
    dcp: int | None = None,
    context: int | Sequence[int] | None = None,
    batch: int | Sequence[int] | None = None,
    max_model_len: int | None = None,
    kv_dtype: str | None = None,
    index_dtype: str | None = None,
    state_dtype: str = StateDtype.FP32,
    kv_memory: int | None = None,
    memory_fraction: float | None = None,
    state_ratio: float | None = None,
    prefix_caching: bool = True,
    draft_tokens: int | None = None,
    replay_ssm: bool = False,
    state_slots: int | None = None,
    chunk_tokens: int | None = None,
    text_only: bool = False,
    image: tuple[int, int] | None = None,
    lora: int | None = None,
    offload: str | None = None,
    resident_experts: int | None = None,
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    cached_fraction: float = 0.0,
    concurrency: int | None = None,
    accepted_tokens: float | None = None,
    rate: float | None = None,
    trace: str | Path | None = None,
    slo: str | None = None,
    simulate: bool = False,
    seed: int = 0,
    price: float | None = None,
    provider: str | None = None,
    term: str | None = None,
    utilisation: float | None = None,
    api: str | None = None,
    purchase: float | None = None,
    staff: float | None = None,
    electricity: float | None = None,
) -> PlanRequest:
    """Return the request that options make; raises UsageError for what cannot be.

    Without ``plays`` a load is never played out: a search has its own loads.
    """
    asked = asked_workload(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        cached_fraction=cached_fraction,
        concurrency=concurrency,
        rate=rate,
        batch=several(batch),
        accepted_tokens=accepted_tokens,
    )
    cost = cost_request(
        price=price,
        provider=provider,
        term=term,
        utilisation=utilisation,
        api=api,
        purchase=purchase,
        staff=staff,
        electricity=electricity,
    )
    contexts = several(context) or contexts_of(asked, max_model_len=max_model_len)
    batches = several(batch) or (1,)
    _check_cells(contexts, batches)
    checked_ratio("--memory-fraction", memory_fraction, most=1)
    checked_ratio("--state-ratio", state_ratio, most=1000)
    for name, size in (("tp", tp), ("pp", pp), ("dp", dp), ("ep", ep), ("dcp", dcp)):
        checked_range(f"--{name}", size, least=1)
    checked_range("--nodes", nodes, least=1, most=MOST_RANKS)
    checked_range("--draft-tokens", draft_tokens, least=0, most=64)
    checked_range("--state-slots", state_slots, least=1, most=64)
    checked_range("--chunk-tokens", chunk_tokens, least=1, most=1 << 24)
    checked_range("--lora", lora, least=1, most=65_536)
    checked_range("--seed", seed, least=0)
    tier = chosen_or_none(Tier, offload, where="--offload")
    _check_companions(kv_memory=kv_memory, offload=tier, resident_experts=resident_experts)
    played = None
    if plays:
        played = simulation_request(
            asked, trace=path_of(trace), slo=slo, simulate=simulate, seed=seed
        )
    return PlanRequest(
        contexts=contexts,
        batches=batches,
        layout=AskedLayout(nodes=nodes, tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp),
        kv_dtype=chosen_or_none(KvFormat, kv_dtype, where="--kv-dtype"),
        index_dtype=chosen_or_none(IndexFormat, index_dtype, where="--index-dtype"),
        state_dtype=chosen(StateDtype, state_dtype, where="--state-dtype"),
        kv_memory_bytes=kv_memory,
        max_model_len=max_model_len,
        prefix_caching=prefix_caching,
        draft_tokens=draft_tokens,
        replay_ssm=replay_ssm,
        state_slots=state_slots,
        chunk_tokens=chunk_tokens,
        memory_fraction=memory_fraction,
        state_ratio=state_ratio,
        text_only=text_only,
        image=image,
        lora_rank=lora,
        offload=tier,
        resident_experts=resident_experts,
        workload=asked,
        cost=cost,
        simulation=played,
    )


def _check_cells(contexts: tuple[int, ...], batches: tuple[int, ...]) -> None:
    """Refuse longer lists, and more cells, than a table is good for, and counts below one."""
    for name, entries in (("--context", contexts), ("--batch", batches)):
        if len(entries) > MOST_ENTRIES:
            raise UsageError(
                f"{len(entries)} entries are more than {MOST_ENTRIES}",
                where=name,
                remedy=f"give {name} a shorter list",
            )
        checked_range(name, min(entries), least=1)
    if len(contexts) * len(batches) > MOST_CELLS:
        raise UsageError(
            f"{len(contexts)} contexts at {len(batches)} batch sizes are more than "
            f"{MOST_CELLS} cells",
            where="--context, --batch",
            remedy="ask for fewer of either",
        )


def _check_companions(
    *, kv_memory: int | None, offload: Tier | None, resident_experts: int | None
) -> None:
    """Refuse a cache of no bytes, and a count of resident experts where none leave."""
    if kv_memory is not None and kv_memory <= 0:
        raise UsageError(
            f"a cache of {kv_memory} bytes holds nothing",
            where="--kv-memory",
            remedy="give it a size such as 42.23GiB, or leave it out",
        )
    checked_range("--resident-experts", resident_experts, least=0)
    if resident_experts is not None and offload is None:
        raise UsageError(
            f"{resident_experts} experts can only stay where the others leave",
            where="--resident-experts",
            remedy="add --offload host or --offload nvme",
        )


def cost_request(
    *,
    price: float | None,
    provider: str | None,
    term: str | None,
    utilisation: float | None,
    api: str | None,
    purchase: float | None,
    staff: float | None,
    electricity: float | None,
) -> CostRequest:
    """What is asked about money; raises UsageError where two options set the same price."""
    checked_ratio("--price", price, least=LEAST_USD, most=MOST_USD_PER_HOUR)
    checked_ratio("--utilisation", utilisation, most=1)
    checked_ratio("--purchase", purchase, least=LEAST_USD, most=MOST_USD)
    checked_ratio("--staff", staff, least=LEAST_USD, most=MOST_USD)
    checked_ratio("--electricity", electricity, least=LEAST_USD, most=MOST_USD_PER_KWH)
    _refuse_pair("--price", price, "--provider", provider)
    _refuse_pair("--price", price, "--term", term)
    if provider != OWNED:
        _refuse_pair("--purchase", purchase, "--provider", provider)
    else:
        _refuse_pair("--provider owned", provider, "--term", term)
    _refuse_pair("--purchase", purchase, "--term", term)
    return CostRequest(
        usd_per_gpu_hour=price,
        provider=provider,
        term=chosen_or_none(Term, term, where="--term"),
        utilisation=utilisation,
        api=api,
        purchase_usd=purchase,
        staff_usd_per_year=staff,
        usd_per_kwh=electricity,
    )


def _refuse_pair(first: str, one: object, second: str, other: object) -> None:
    if one is not None and other is not None:
        raise UsageError(
            f"{first} and {second} each set the price of a GPU-hour",
            where=f"{first}, {second}",
            remedy="leave one of them out",
        )
