"""``k31ctl plan``: what fits, where the memory goes, how many requests run at once."""

import shlex
import sys

from k31ctl.catalog.engines import load_draft, resolve_engine
from k31ctl.catalog.models import load_model
from k31ctl.catalog.prices import load_price_book
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.store import Store, default_folders
from k31ctl.cli import cold_start_options as starting
from k31ctl.cli import cost_options as money
from k31ctl.cli import options as opt
from k31ctl.cli import plan_options as own
from k31ctl.cli import search_options as seeking
from k31ctl.cli import workload_options as load
from k31ctl.cli.disaggregation_options import DisaggregateOpt
from k31ctl.cli.further import further_answers
from k31ctl.cli.hardware import node_named
from k31ctl.core import plan as core
from k31ctl.core.asked_deployment import asked_deployment
from k31ctl.core.costing import NO_WISHES
from k31ctl.core.gates import parse_gate
from k31ctl.core.goal import Goal
from k31ctl.core.kv_cache import StateDtype
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.report.plan import Origin, show_plan

_CONTEXTS = opt.Lengths((128 << 10,))
_BATCHES = opt.Counts((1,))


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
    gate: opt.GateOpt = None,
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
    store = Store(default_folders(profiles or ()))
    asked = load.asked_workload(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        cached_fraction=cached_fraction,
        concurrency=concurrency,
        rate=rate,
        batch=batch,
        accepted_tokens=accepted_tokens,
    )
    cost = money.cost_request(
        price=price,
        provider=provider,
        term=term,
        utilisation=utilisation,
        api=api,
        purchase=purchase,
        staff=staff,
        electricity=electricity,
    )
    contexts, batches = context or load.contexts_of(asked) or _CONTEXTS, batch or _BATCHES
    own.checked_cells(contexts, batches)
    own.checked_ratio("--memory-fraction", memory_fraction, most=1)
    own.checked_ratio("--state-ratio", state_ratio, most=1000)
    own.checked_companions(kv_memory=kv_memory, offload=offload, resident_experts=resident_experts)
    gates = tuple(parse_gate(text) for text in gate or ())
    loaded = load_model(store, model)
    searching = search or fleet is not None or systems is not None
    request = core.PlanRequest(
        contexts=tuple(contexts),
        batches=tuple(batches),
        layout=AskedLayout(nodes=nodes, tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp),
        kv_dtype=kv_dtype,
        index_dtype=index_dtype,
        state_dtype=state_dtype,
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
        image=own.image_size(image),
        lora_rank=lora,
        offload=offload,
        resident_experts=resident_experts,
        workload=asked,
        cost=cost,
        simulation=(
            None
            if searching
            else load.simulation_request(asked, trace=trace, slo=slo, simulate=simulate, seed=seed)
        ),
    )
    if searching:
        from k31ctl.cli.search import search_and_show

        search_and_show(
            store,
            loaded,
            request,
            on=on,
            engine=engine,
            draft=draft,
            systems=systems,
            engines=engines,
            max_nodes=max_nodes,
            goal=goal,
            slo=slo,
            fleet=fleet,
            concurrencies=tuple(batch or ((concurrency,) if concurrency else ())),
            state_dtype=state_dtype,
            calibration=calibration,
            provider=provider,
            gates=gates,
            as_json=as_json,
            csv=csv,
            html=html,
            command=shlex.join(("k31ctl", *sys.argv[1:])),
        )
        return
    node = node_named(store, on)
    parts = core.Parts(
        model=loaded,
        node=node,
        engine=resolve_engine(store, engine, loaded),
        draft=load_draft(store, draft) if draft else None,
        speed=load_speed(store, calibration),
        prices=load_price_book(
            store, about=(node.id, loaded.id, *([provider] if provider else ()))
        ),
    )
    planned = core.plan(parts, request)
    beside = further_answers(
        store,
        planned,
        cold_start=cold_start,
        link_rate=link_rate,
        storage=storage,
        loader=loader,
        warm_caches=warm_caches,
        disaggregate=disaggregate,
    )
    show_plan(
        planned,
        beside,
        gates=gates,
        as_json=as_json,
        breakdown=breakdown,
        money=cost != NO_WISHES,
        csv=csv,
        markdown=markdown,
        html=html,
        origin=Origin(
            command=shlex.join(("k31ctl", *sys.argv[1:])),
            asked=asked_deployment(
                request,
                model=model,
                hardware=on,
                engine=f"{parts.engine.engine}@{parts.engine.version}",
                draft=draft,
                calibration=str(calibration) if calibration else None,
                profiles=tuple(map(str, profiles or ())),
            ),
        ),
    )
