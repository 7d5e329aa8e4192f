"""``k31ctl serve``: from a plan to the files that start it, or the embedded engine itself."""

import os
from pathlib import Path

import typer

from k31ctl.cli import embedded_options as embedded
from k31ctl.cli import options as opt
from k31ctl.cli import plan_options as planning
from k31ctl.cli import serve_options as own
from k31ctl.cli.disaggregation_options import DisaggregateOpt
from k31ctl.cli.serve_wish import node_here, said_by_user, wish_of
from k31ctl.serve.asked import Target

_USUAL_TOKENS = 8192


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
    gate: opt.GateOpt = None,
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
    said = said_by_user(ctx)
    if engine.partition("@")[0] == "embedded":
        embedded.refuse_others(said)
        embedded.check_streamed(experts, experts_stored, experts_ready)
        from k31ctl.cli.serve_embedded import Endpoint, serve_embedded
        from k31ctl.core.embedded import Wish as EmbeddedWish

        own_wish = EmbeddedWish(
            device=embedded.checked_device(device),
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
            served_name=own.checked_name("--served-name", served_name),
            api_key=embedded.api_key(api_key_file),
        )
        serve_embedded(model, own_wish, endpoint, engine=engine, profiles=profiles, as_json=as_json)
        return
    embedded.refuse_own(said, port)
    from k31ctl.catalog.store import Store, default_folders
    from k31ctl.core.gates import parse_gate
    from k31ctl.core.layout_rules import AskedLayout
    from k31ctl.core.recipe import Role
    from k31ctl.report.serve import show_launch
    from k31ctl.report.serve_gates import gate_results, require_passed
    from k31ctl.serve.asked import Asked
    from k31ctl.serve.gather import gather
    from k31ctl.serve.launch_files import launch_files, rollout
    from k31ctl.serve.local_model import checkpoint_folder
    from k31ctl.serve.own_findings import own_findings, refuse_errors

    gates = tuple(parse_gate(text) for text in gate or ())
    store = Store(default_folders(profiles or ()))
    own.check_alone(draft=draft, draft_tokens=draft_tokens, plan=plan, engine=engine)
    wish = wish_of(
        store,
        plan=plan,
        said=said,
        model=model,
        engine=engine,
        on=on,
        layout=AskedLayout(nodes=nodes, tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp),
        context=context,
        max_model_len=max_model_len,
        kv_dtype=kv_dtype,
        draft=draft,
        draft_tokens=draft_tokens,
        text_only=text_only,
    )
    model, engine, on, nodes = wish.model, wish.engine, wish.hardware, wish.layout.nodes
    own.check_exec(
        execute=execute,
        target=target,
        nodes=nodes,
        pools=disaggregate is not None,
        out=out,
        as_json=as_json,
    )
    place = own.asked_place(head, hosts, interface)
    folder = (
        checkpoint_folder(store, model)
        if model_path is None
        else own.checked_name("--model-path", model_path)
    )
    _require_whole(folder)
    asked = Asked(
        role=Role.UNIFIED,
        layout=wish.layout,
        aim=goal,
        target=target,
        context_tokens=wish.context_tokens or _USUAL_TOKENS,
        kv_dtype=wish.kv_dtype,
        max_model_len=wish.max_model_len,
        draft=wish.draft,
        draft_tokens=wish.draft_tokens,
        overlays=tuple(overlay or ()),
        text_only=wish.text_only,
        port=port,
        served_name=own.checked_name("--served-name", served_name),
        folder=folder,
        image=own.checked_name("--image", image),
        planned=wish.settings,
        counted=wish.counted,
        warnings=wish.warnings,
    )
    if engine.partition("@")[0] == "tensorrt-llm":
        own.check_tensorrt(execute=execute, pools=disaggregate is not None)
        from k31ctl.cli.serve_tensorrt import serve_tensorrt

        serve_tensorrt(
            store,
            model=model,
            engine=engine,
            on=on,
            asked=asked,
            place=place,
            out=out,
            force=force,
            as_json=as_json,
            gates=gates,
        )
        return
    gathered = gather(
        store,
        model=model,
        engine=engine,
        on=on,
        draft=wish.draft,
        image=image,
        node=node_here(store, on),
    )
    made = rollout(gathered, asked, place, disaggregate)
    files = launch_files(made, target)
    findings = own_findings(store, gathered, files, made)
    if not force:
        refuse_errors(findings)
    held = gate_results(gates, made, findings)
    if execute:
        require_passed(held, title=made.title)
        from k31ctl.cli.run import run_here

        run_here(made, files[0].text)
        return
    show_launch(
        made,
        files,
        findings=findings,
        inputs={
            "model": gathered.model.id,
            "engine": engine,
            "on": gathered.node.id,
            "nodes": nodes,
            "as": target,
            "goal": goal,
        },
        out=out,
        force=force,
        as_json=as_json,
        gates=held,
    )


def _require_whole(model_path: str | None) -> None:
    """Refuse a folder of this machine that holds a part of a checkpoint; others are not seen."""
    from k31ctl.fetch.partial_marker import require_whole

    if model_path and os.access(model_path, os.X_OK) and Path(model_path).is_dir():
        require_whole(Path(model_path))
