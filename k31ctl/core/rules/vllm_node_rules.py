"""Rules of vLLM about connectors and several nodes."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import BLACKWELL, LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, drop, hit

_KV_MOVERS: Final = ("nixlconnector", "mooncakeconnector", "mooncakestoreconnector")


def _connector(context: LaunchContext) -> str:
    return str(context.fields("--kv-transfer-config").get("kv_connector", "") or "")


def _connector_role(context: LaunchContext) -> Iterable[Hit]:
    fields = context.fields("--kv-transfer-config")
    if not fields.get("kv_connector") or fields.get("kv_role"):
        return NOTHING
    return hit(context, "kv_role is obligatory and missing", "--kv-transfer-config")


def _expandable(context: LaunchContext) -> Iterable[Hit]:
    setting = "expandable_segments:true"
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    name = next((n for n in names if setting in context.variable(n).casefold()), "")
    if not name or _connector(context).casefold() not in _KV_MOVERS:
        return NOTHING
    if context.value("--enable-cumem-allocator"):
        return NOTHING
    return hit(
        context,
        f"{_connector(context)} refuses expandable_segments:True: registered memory must not move",
        "--kv-transfer-config",
        variable=name,
        change=Change(variables={name: None})
        if context.variable(name).casefold() == setting
        else None,
    )


def _hybrid_manager(context: LaunchContext) -> Iterable[Hit]:
    setting = context.launch.setting("--disable-hybrid-kv-cache-manager")
    if not context.is_k3 or setting is None or setting.value is not True:
        return NOTHING
    return hit(
        context,
        "a model with linear layers does not start without the hybrid cache manager",
        "--disable-hybrid-kv-cache-manager",
        change=drop(context, "--disable-hybrid-kv-cache-manager"),
    )


def _conv_layout(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or _connector(context).casefold() != "nixlconnector":
        return NOTHING
    if context.variable("VLLM_SSM_CONV_STATE_LAYOUT") == "DS" or context.wrapped:
        return NOTHING
    return hit(
        context,
        "NixlConnector moves convolution states only in the layout DS",
        "--kv-transfer-config",
        variable="VLLM_SSM_CONV_STATE_LAYOUT",
        change=Change(variables={"VLLM_SSM_CONV_STATE_LAYOUT": "DS"}),
    )


def _nixl(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or _connector(context).casefold() != "nixlconnector":
        return NOTHING
    message = "garbled text was reported for this model, only when disaggregated by NixlConnector"
    return hit(context, message, "--kv-transfer-config")


def _nixl_context(context: LaunchContext) -> Iterable[Hit]:
    tp, dcp = context.size("tp"), context.size("dcp")
    if _connector(context).casefold() != "nixlconnector" or dcp in (1, tp):
        return NOTHING
    message = f"NixlConnector wants decode-context parallelism 1 or {tp}, not {dcp}"
    return hit(context, message, "--decode-context-parallel-size")


def _side_channel(context: LaunchContext) -> Iterable[Hit]:
    name = "VLLM_NIXL_SIDE_CHANNEL_HOST"
    host = context.variable(name)
    if host not in ("localhost", "127.0.0.1"):
        return NOTHING
    message = f"{name}={host}: the NIXL side channel listens where no other node reaches it"
    return hit(context, message, variable=name)


def _side_channel_unset(context: LaunchContext) -> Iterable[Hit]:
    name, here = "VLLM_NIXL_SIDE_CHANNEL_HOST", context.gpus_per_node
    if _connector(context).casefold() != "nixlconnector" or context.wrapped:
        return NOTHING
    if name in context.launch.environment or not here or context.ranks < here:
        return NOTHING
    return hit(
        context,
        f"{name} is not set, so the NIXL side channel listens on localhost, and a server that "
        f"takes all {here} GPUs of a node has its other half on another",
        "--kv-transfer-config",
    )


def _lmcache(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or "lmcache" not in _connector(context).casefold():
        return NOTHING
    message = f"{_connector(context)} corrupted shared prefixes of models with linear layers"
    return hit(context, message, "--kv-transfer-config")


def _executor(context: LaunchContext) -> Iterable[Hit]:
    if context.size("nnodes") == 1:
        return NOTHING
    executor = context.text("--distributed-executor-backend")
    if executor and executor not in ("mp", "uni", "external_launcher"):
        message = f"--nnodes does not go with --distributed-executor-backend {executor}"
        return hit(context, message, "--distributed-executor-backend", "--nnodes")
    if context.text("--data-parallel-backend") not in ("", "mp"):
        return hit(context, "--nnodes needs --data-parallel-backend mp", "--data-parallel-backend")
    return NOTHING


def _uneven_nodes(context: LaunchContext) -> Iterable[Hit]:
    nodes, ranks = context.size("nnodes"), context.size("tp") * context.size("pp")
    if nodes == 1 or ranks * context.dp % nodes == 0:
        return NOTHING
    message = f"{ranks * context.dp} ranks do not divide among {nodes} nodes"
    sizes = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
    return hit(context, message, "--nnodes", *sizes)


def _balancers(context: LaunchContext) -> Iterable[Hit]:
    flags = (
        "--data-parallel-hybrid-lb",
        "--data-parallel-external-lb",
        "--data-parallel-multi-port-external-lb",
    )
    used = [flag for flag in flags if context.value(flag)]
    if len(used) > 1:
        return hit(context, "only one way of balancing load can be chosen", *used)
    if used == [flags[0]] and context.value("--headless"):
        return hit(context, f"{flags[0]} does not go with --headless", flags[0], "--headless")
    if used == [flags[1]] and not context.has("--data-parallel-rank"):
        return hit(context, f"{flags[1]} needs --data-parallel-rank", flags[1])
    return NOTHING


def _hybrid_local(context: LaunchContext) -> Iterable[Hit]:
    flag = "--data-parallel-hybrid-lb"
    if not context.value(flag) or context.has("--data-parallel-size-local"):
        return NOTHING
    if not (context.spans_nodes or context.has("--data-parallel-start-rank")):
        return NOTHING
    return hit(context, f"{flag} needs --data-parallel-size-local", flag)


def _execute_timeout(context: LaunchContext) -> Iterable[Hit]:
    name = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
    if context.size("pp") == 1 or context.variable(name) or context.wrapped:
        return NOTHING
    return hit(
        context,
        "a pipeline stage may take longer than the 300 s that a step is given",
        "--pipeline-parallel-size",
        change=Change(variables={name: "1800"}),
    )


def _ray_pipeline(context: LaunchContext) -> Iterable[Hit]:
    if context.size("pp") == 1 or context.text("--distributed-executor-backend") != "ray":
        return NOTHING
    message = "Ray with pipeline parallelism failed with a KeyError"
    return hit(context, message, "--distributed-executor-backend")


def _autotune(context: LaunchContext) -> Iterable[Hit]:
    flag = "--enable-flashinfer-autotune"
    if context.gpu not in BLACKWELL or context.nodes <= 1 or context.value(flag) is False:
        return NOTHING
    kernels = context.fields("--kernel-config")
    if kernels.get("enable_flashinfer_autotune") is False:
        return NOTHING
    is_open = context.open_ended or (context.has("--kernel-config") and not kernels)
    is_elsewhere = is_open or context.wrapped or context.on_ray
    if not context.value(flag) and is_elsewhere:
        return NOTHING
    message = "FlashInfer's autotuning at start was too slow or unstable over several nodes"
    if not context.has(flag):
        message += ", and it is on unless --disable-flashinfer-autotune is written"
    change = None if context.has(flag) else Change(add=("--disable-flashinfer-autotune",))
    return hit(context, message, flag, change=change)


VLLM_NODE_RULES: Final = (
    Rule(
        id="vllm-connector-role",
        absence=True,
        severity=Severity.ERROR,
        about="a connector has no role",
        remedy='add "kv_role":"kv_both"',
        source="vLLM 0.33.0 config/kv_transfer.py",
        check=_connector_role,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-connector-expandable",
        severity=Severity.ERROR,
        about="expandable segments are on beside a connector that registers memory",
        remedy="take expandable_segments:True out, or add --enable-cumem-allocator",
        source="vLLM 0.33.0 config/vllm.py",
        check=_expandable,
        engines=("vllm",),
        failures=(53,),
    ),
    Rule(
        id="vllm-hybrid-manager",
        severity=Severity.ERROR,
        about="the hybrid cache manager is switched off for a model with linear layers",
        remedy="take --disable-hybrid-kv-cache-manager out",
        source="vLLM 0.33.0 config/vllm.py",
        check=_hybrid_manager,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-nixl-conv-layout",
        unset=True,
        severity=Severity.ERROR,
        about="NIXL moves the states of linear layers in another layout than DS",
        remedy="set VLLM_SSM_CONV_STATE_LAYOUT=DS",
        source="vllm-project/recipes Kimi-K3.yaml; vLLM 0.33.0 distributed/kv_transfer",
        check=_conv_layout,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-nixl-garbled",
        severity=Severity.WARNING,
        about="prefill and decode are split over NIXL",
        remedy="compare answers with a single engine, or use a Mooncake store",
        source="vllm-project/vllm#52627, vllm-project/vllm pull 55215",
        check=_nixl,
        engines=("vllm",),
        failures=(6,),
        until="0.34.0",
    ),
    Rule(
        id="vllm-nixl-dcp",
        absence=True,
        severity=Severity.ERROR,
        about="NIXL is given a decode-context parallelism between 1 and the tensor parallelism",
        remedy="use 1 or the tensor-parallel size",
        source="vLLM 0.33.0 distributed/kv_transfer",
        check=_nixl_context,
        engines=("vllm",),
    ),
    Rule(
        id="nixl-side-channel",
        severity=Severity.ERROR,
        about="the NIXL side channel is on localhost",
        remedy="set VLLM_NIXL_SIDE_CHANNEL_HOST to the node's address",
        source="ai-dynamo/nixl#1614, ai-dynamo/dynamo#4773",
        check=_side_channel,
        engines=("vllm",),
        failures=(48,),
    ),
    Rule(
        id="nixl-side-channel-unset",
        unset=True,
        severity=Severity.WARNING,
        about="the NIXL side channel stays on localhost, and the other half is on another node",
        remedy="set VLLM_NIXL_SIDE_CHANNEL_HOST to the node's address",
        source="ai-dynamo/nixl#1614, NVIDIA/srt-slurm#11",
        check=_side_channel_unset,
        engines=("vllm",),
        failures=(47, 48),
    ),
    Rule(
        id="vllm-lmcache-hybrid",
        severity=Severity.WARNING,
        about="LMCache keeps prefixes of a model with linear layers",
        remedy="leave --kv-transfer-config out; --enable-prefix-caching keeps prefixes on the GPUs",
        source="vllm-project/vllm#50953, LMCache/LMCache#4247",
        check=_lmcache,
        engines=("vllm",),
        failures=(14,),
    ),
    Rule(
        id="vllm-nodes-executor",
        severity=Severity.ERROR,
        about="--nnodes stands beside an executor of one node or a cluster",
        remedy="use --distributed-executor-backend mp",
        source="vLLM 0.33.0 config/parallel.py",
        check=_executor,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-nodes-uneven",
        absence=True,
        severity=Severity.ERROR,
        about="the ranks do not divide among the nodes",
        remedy="use a layout that fills every node",
        source="vLLM 0.33.0 config/parallel.py",
        check=_uneven_nodes,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-load-balancers",
        severity=Severity.ERROR,
        about="ways of balancing load contradict each other",
        remedy="keep one of them",
        source="vLLM 0.33.0 config/parallel.py",
        check=_balancers,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-hybrid-lb-local",
        absence=True,
        severity=Severity.ERROR,
        about="hybrid load balancing does not say how many ranks are local",
        remedy="add --data-parallel-size-local",
        source="vLLM 0.33.0 config/parallel.py",
        check=_hybrid_local,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-pipeline-timeout",
        unset=True,
        severity=Severity.WARNING,
        about="a pipeline keeps the usual limit of a step",
        remedy="set VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800",
        source="vllm-project/vllm#41530; vllm-project/recipes Kimi-K3.yaml",
        check=_execute_timeout,
        engines=("vllm",),
        failures=(35,),
    ),
    Rule(
        id="vllm-ray-pipeline",
        severity=Severity.WARNING,
        about="Ray runs pipeline stages",
        remedy="use --distributed-executor-backend mp, or a release after 0.18.0",
        source="vllm-project/vllm#37974",
        check=_ray_pipeline,
        engines=("vllm",),
        failures=(36,),
        until="0.19.0",
    ),
    Rule(
        id="vllm-autotune-nodes",
        severity=Severity.WARNING,
        about="FlashInfer tunes itself at start on several Blackwell nodes",
        remedy="write --disable-flashinfer-autotune",
        source="vllm-project/recipes Kimi-K3.yaml",
        check=_autotune,
        engines=("vllm",),
        failures=(55,),
    ),
)
