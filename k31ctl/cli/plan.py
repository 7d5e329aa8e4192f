"""``k31ctl plan``: what fits, where the memory goes, how many requests run at once."""

import shlex
import sys
from typing import Annotated

from k31ctl.cli import cold_start_options as starting
from k31ctl.cli import cost_options as money
from k31ctl.cli import options as opt
from k31ctl.cli import plan_options as own
from k31ctl.cli import search_options as seeking
from k31ctl.cli import workload_options as load
from k31ctl.cli.disaggregation_options import DisaggregateOpt
from k31ctl.core.goal import Goal
from k31ctl.core.kv_cache import StateDtype


def plan(
    model: opt.ModelArg = "kimi-k3.1-pro",
    *,
    on: opt.OnOpt = "8x-b300",
    engine: own.EngineOpt = "vllm",
    nodes: opt.NodesOpt = 1,
    tp: opt.TpOpt = None,
    pp: opt.PpOpt = None,
    dp: opt.DpOpt = None,
    ep: opt.EpOpt = None,
    dcp: opt.DcpOpt = None,
    context: opt.ContextOpt = None,
    batch: opt.BatchOpt = None,
    max_model_len: opt.MaxModelLenOpt = None,
    kv_dtype: own.KvDtypeOpt = None,
    index_dtype: own.IndexDtypeOpt = None,
    state_dtype: own.StateDtypeOpt = StateDtype.FP32,
    kv_memory: opt.KvMemoryOpt = None,
    memory_fraction: own.MemoryFractionOpt = None,
    state_ratio: own.StateRatioOpt = None,
    prefix_caching: own.PrefixCachingOpt = True,
    draft: own.DraftOpt = None,
    draft_tokens: own.DraftTokensOpt = None,
    replay_ssm: own.ReplayOpt = False,
    state_slots: own.StateSlotsOpt = None,
    chunk_tokens: own.ChunkTokensOpt = None,
    text_only: own.TextOnlyOpt = False,
    image: own.ImageOpt = None,
    lora: own.LoraOpt = None,
    offload: own.OffloadOpt = None,
    resident_experts: own.ResidentOpt = None,
    prompt_tokens: opt.PromptTokensOpt = None,
    output_tokens: opt.OutputTokensOpt = None,
    cached_fraction: load.CachedFractionOpt = 0.0,
    concurrency: load.ConcurrencyOpt = None,
    accepted_tokens: load.AcceptedTokensOpt = None,
    rate: load.RateOpt = None,
    trace: load.TraceOpt = None,
    slo: load.SloOpt = None,
    simulate: load.SimulateOpt = False,
    seed: load.SeedOpt = 0,
    calibration: load.CalibrationOpt = None,
    breakdown: load.BreakdownOpt = False,
    search: seeking.SearchOpt = False,
    goal: seeking.GoalOpt = Goal.THROUGHPUT,
    fleet: seeking.FleetOpt = None,
    systems: seeking.SystemsOpt = None,
    engines: seeking.EnginesOpt = None,
    max_nodes: seeking.MaxNodesOpt = 4,
    cold_start: starting.ColdStartOpt = False,
    link_rate: starting.LinkRateOpt = None,
    storage: starting.StorageOpt = None,
    loader: starting.LoaderOpt = None,
    warm_caches: starting.WarmCachesOpt = False,
    disaggregate: DisaggregateOpt = None,
    price: money.PriceOpt = None,
    provider: money.ProviderOpt = None,
    term: money.TermOpt = None,
    utilisation: money.UtilisationOpt = None,
    api: money.ApiOpt = None,
    purchase: money.PurchaseOpt = None,
    staff: money.StaffOpt = None,
    electricity: money.ElectricityOpt = None,
    as_json: opt.JsonOpt = False,
    csv: opt.CsvOpt = None,
    markdown: opt.MarkdownOpt = None,
    html: opt.HtmlOpt = None,
    gate: Annotated[list[str] | None, opt.gate_option("fits==true")] = None,
    profiles: opt.ProfilesOpt = None,
) -> None:
    """Say what a model needs on these GPUs, and how much context and how many requests fit.

    The answer comes first, then where every GiB of a GPU goes, then what was
    assumed. Sizes need a unit (42.23GiB, 42.23GB); in token counts k is 1024 and
    m is 1024 x 1024.

    k31ctl plan kimi-k3 --on 8x-h200 --nodes 2 --kv-dtype fp8

    k31ctl plan --context 8k,128k,1m --batch 1,8,64 --csv table.csv

    k31ctl plan --json --gate fits==true --gate "capacity.max_requests>=2"
    """
    from k31ctl.api.plan_request import PlanOptions
    from k31ctl.core.gates import parse_gate

    gates = tuple(parse_gate(text) for text in gate or ())
    options = PlanOptions(
        nodes=nodes,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        dcp=dcp,
        context=context,
        batch=batch,
        max_model_len=max_model_len,
        kv_dtype=kv_dtype,
        index_dtype=index_dtype,
        state_dtype=state_dtype,
        kv_memory=kv_memory,
        memory_fraction=memory_fraction,
        state_ratio=state_ratio,
        prefix_caching=prefix_caching,
        draft_tokens=draft_tokens,
        replay_ssm=replay_ssm,
        state_slots=state_slots,
        chunk_tokens=chunk_tokens,
        text_only=text_only,
        image=own.image_size(image),
        lora=lora,
        offload=offload,
        resident_experts=resident_experts,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        cached_fraction=cached_fraction,
        concurrency=concurrency,
        accepted_tokens=accepted_tokens,
        rate=rate,
        trace=trace,
        slo=slo,
        simulate=simulate,
        seed=seed,
        price=price,
        provider=provider,
        term=term,
        utilisation=utilisation,
        api=api,
        purchase=purchase,
        staff=staff,
        electricity=electricity,
    )
    command = shlex.join(("k31ctl", *sys.argv[1:]))
    if search or fleet is not None or systems is not None:
        from k31ctl.api.planning import search_with_prices
        from k31ctl.report.search import show_search

        found, prices = search_with_prices(
            model,
            on=on,
            engine=engine,
            systems=systems,
            engines=engines,
            max_nodes=max_nodes,
            goal=goal,
            fleet=fleet,
            draft=draft,
            calibration=calibration,
            profiles=profiles or (),
            **options,
        )
        show_search(
            found, prices, gates=gates, as_json=as_json, csv=csv, html=html, command=command
        )
        return
    from k31ctl.api import planning
    from k31ctl.api.further import further_answers
    from k31ctl.api.given import store_of
    from k31ctl.core.asked_deployment import asked_deployment
    from k31ctl.core.costing import NO_WISHES
    from k31ctl.report.plan import Origin, show_plan

    planned = planning.plan(
        model,
        on=on,
        engine=engine,
        draft=draft,
        calibration=calibration,
        profiles=profiles or (),
        **options,
    )
    beside = further_answers(
        store_of(profiles or ()),
        planned,
        cold_start=cold_start,
        link_rate=link_rate,
        storage=storage,
        loader=loader,
        warm_caches=warm_caches,
        disaggregate=disaggregate,
    )
    release = planned.parts.engine
    show_plan(
        planned,
        beside,
        gates=gates,
        as_json=as_json,
        breakdown=breakdown,
        money=planned.request.cost != NO_WISHES,
        csv=csv,
        markdown=markdown,
        html=html,
        origin=Origin(
            command=command,
            asked=asked_deployment(
                planned.request,
                model=model,
                hardware=on,
                engine=f"{release.engine}@{release.version}",
                draft=draft,
                calibration=str(calibration) if calibration else None,
                profiles=tuple(map(str, profiles or ())),
            ),
        ),
    )
