"""``k31ctl serve``: from a plan to the files that start it, or the embedded engine itself."""

from typing import Annotated

import typer

from k31ctl.cli import embedded_options as embedded
from k31ctl.cli import options as opt
from k31ctl.cli import plan_options as planning
from k31ctl.cli import serve_options as own
from k31ctl.cli.disaggregation_options import DisaggregateOpt
from k31ctl.serve.asked import Target


def serve(
    ctx: typer.Context,
    model: own.ModelArg = "kimi-k3.1-pro",
    *,
    engine: planning.EngineOpt = "vllm",
    on: opt.OnOpt = "8x-b300",
    plan: own.PlanOpt = None,
    target: own.TargetOpt = Target.SHELL,
    goal: own.GoalOpt = None,
    nodes: opt.NodesOpt = 1,
    tp: opt.TpOpt = None,
    pp: opt.PpOpt = None,
    dp: opt.DpOpt = None,
    ep: opt.EpOpt = None,
    dcp: opt.DcpOpt = None,
    context: own.ContextOpt = None,
    max_model_len: opt.MaxModelLenOpt = None,
    kv_dtype: planning.KvDtypeOpt = None,
    disaggregate: DisaggregateOpt = None,
    draft: planning.DraftOpt = None,
    draft_tokens: planning.DraftTokensOpt = None,
    text_only: planning.TextOnlyOpt = False,
    overlay: own.OverlayOpt = None,
    image: own.ImageOpt = None,
    model_path: own.ModelPathOpt = None,
    served_name: own.ServedNameOpt = None,
    port: own.PortOpt = None,
    head: own.HeadOpt = None,
    hosts: own.HostsOpt = None,
    interface: own.InterfaceOpt = None,
    execute: own.ExecOpt = False,
    out: own.OutOpt = None,
    force: own.ForceOpt = False,
    host: embedded.HostOpt = embedded.LOOPBACK,
    device: embedded.DeviceOpt = None,
    dtype: embedded.DtypeOpt = None,
    layers: embedded.LayersOpt = None,
    experts: embedded.ExpertsOpt = None,
    experts_stored: embedded.ExpertsStoredOpt = None,
    experts_ready: embedded.ExpertsReadyOpt = None,
    plain: embedded.PlainOpt = False,
    max_num_seqs: embedded.MaxNumSeqsOpt = 8,
    kv_memory: opt.KvMemoryOpt = None,
    api_key_file: embedded.ApiKeyFileOpt = None,
    as_json: opt.JsonOpt = False,
    gate: Annotated[list[str] | None, opt.gate_option("warnings==0")] = None,
    profiles: opt.ProfilesOpt = None,
) -> None:
    """Write the files that start a model: every setting with its reason and its source.

    Settings come from a published recipe where there is one, and from the memory
    model; what does not fit is refused with exit code 4. Without --out the files
    are printed.

    k31ctl serve kimi-k3 --engine vllm --on 8x-b300 --as shell

    k31ctl serve kimi-k3 --engine sglang --on 8x-b200 --nodes 2 --as slurm --out k3

    k31ctl serve tiny-k31 --engine embedded --port 8000
    """
    said = own.said_by_user(ctx)
    if engine.partition("@")[0] == "embedded":
        embedded.refuse_others(said)
        from k31ctl.api.launching import checked_name
        from k31ctl.api.machine import check_streamed, checked_device
        from k31ctl.cli.serve_embedded import Endpoint, serve_embedded
        from k31ctl.core.embedded import Wish as EmbeddedWish

        check_streamed(experts, experts_stored, experts_ready)
        own_wish = EmbeddedWish(
            device=checked_device(device or ""),
            dtype=dtype or "",
            layers=embedded.as_range(layers),
            experts=experts or "",
            experts_stored_bytes=experts_stored,
            experts_ready_bytes=experts_ready,
            is_plain=plain,
            num_requests=max_num_seqs,
            max_model_len=max_model_len,
            cache_bytes=kv_memory,
        )
        endpoint = Endpoint(
            host=host,
            port=embedded.PORT if port is None else port,
            served_name=checked_name("--served-name", served_name),
            api_key=embedded.api_key(api_key_file),
        )
        serve_embedded(model, own_wish, endpoint, engine=engine, profiles=profiles, as_json=as_json)
        return
    embedded.refuse_own(said, port)
    from k31ctl.api import launching
    from k31ctl.api.given import store_of
    from k31ctl.core.gates import parse_gate
    from k31ctl.report.serve import show_launch
    from k31ctl.report.serve_gates import gate_results, require_passed

    gates = tuple(parse_gate(text) for text in gate or ())
    store = store_of(profiles or ())
    wish = launching.wish_of(
        store,
        plan=plan,
        said=said,
        model=model,
        engine=engine,
        on=on,
        nodes=nodes,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        dcp=dcp,
        context=context,
        max_model_len=max_model_len,
        kv_dtype=kv_dtype,
        draft=draft,
        draft_tokens=draft_tokens,
        text_only=text_only,
    )
    own.check_exec(
        execute=execute,
        target=target,
        nodes=wish.layout.nodes,
        pools=disaggregate is not None,
        out=out,
        as_json=as_json,
    )
    place = launching.asked_place(head, hosts.split(",") if hosts else (), interface)
    if wish.engine.partition("@")[0] == launching.TENSORRT:
        launching.check_tensorrt(execute=execute, pools=disaggregate is not None)
    made = launching.launch_of(
        store,
        wish,
        target=target,
        goal=goal,
        pools=disaggregate,
        overlay=overlay or (),
        image=image,
        model_path=model_path,
        served_name=served_name,
        port=port,
        place=place,
        force=force,
    )
    held = gate_results(gates, made.rollout, made.findings)
    if execute:
        require_passed(held, title=made.rollout.title)
        from k31ctl.cli.run import run_here

        run_here(made.rollout, made.files[0].text)
        return
    planned = made.rollout.servers[0].plan
    show_launch(
        made.rollout,
        made.files,
        findings=made.findings,
        inputs={
            "model": planned.parts.model.id,
            "engine": wish.engine,
            "on": planned.parts.node.id,
            "nodes": wish.layout.nodes,
            "as": target,
            "goal": goal,
        },
        out=out,
        force=force,
        as_json=as_json,
        gates=held,
    )
