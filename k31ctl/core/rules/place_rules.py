"""Rules about the network between nodes and about time limits."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import FileKind, LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit

_ENOUGH_STARTUP_S: Final = 900
_NICS: Final = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_ADDRESSES: Final = ("VLLM_HOST_IP", "SGLANG_HOST_IP", "NCCL_IB_HCA")
_OFF: Final = ("0", "false", "")


def _interfaces(context: LaunchContext) -> Iterable[Hit]:
    if context.kind is FileKind.COMMAND or context.size("nnodes") == 1 or context.wrapped:
        return NOTHING  # what wraps an engine starts it in pods, or says so itself
    if context.kind is FileKind.KUBERNETES and not (
        context.container is not None and context.container.host_network
    ):
        return NOTHING  # a pod has one interface of its own
    missing = [name for name in _NICS if name not in context.launch.environment]
    if not missing or context.open_environment:
        return NOTHING
    partly = len(missing) < len(_NICS) or any(map(context.variable, _ADDRESSES))
    return hit(
        context,
        f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set: NCCL and Gloo "
        "may take the loopback or the wrong interface between the nodes",
        remedy=f"export {' '.join(f'{name}=eth0' for name in missing)}, with the name of the "
        "interface that the nodes reach each other by",
        severity=Severity.WARNING if partly else None,
    )


def _loopback(context: LaunchContext) -> Iterable[Hit]:
    names = [n for n in _NICS if context.variable(n) == "lo"]
    if not names or context.size("nnodes") == 1:
        return NOTHING
    return hit(context, f"{names[0]}=lo names the loopback", variable=names[0])


def _local_address(context: LaunchContext) -> Iterable[Hit]:
    flags = ("--master-addr", "--dist-init-addr", "--data-parallel-address")
    if context.wrapped:
        return NOTHING
    for flag in flags:
        host = context.text(flag).rpartition(":")[0] or context.text(flag)
        if host in ("localhost", "127.0.0.1") and context.size("nnodes") > 1:
            message = f"{flag} {context.text(flag)} is the loopback, which other nodes do not reach"
            return hit(context, message, flag)
    if context.name == "vllm" and context.size("nnodes") > 1 and not context.has("--master-addr"):
        message = "--nnodes without --master-addr meets at 127.0.0.1"
        return hit(context, message, "--nnodes")
    return NOTHING


def _ready_timeout(context: LaunchContext) -> Iterable[Hit]:
    name = "VLLM_ENGINE_READY_TIMEOUT_S"
    given = context.variable(name)
    if not context.is_k3 or not given.isdigit() or int(given) >= _ENOUGH_STARTUP_S:
        return NOTHING
    return hit(
        context,
        f"{name}={given} ends the start while 1.5 TB of weights are still being read",
        variable=name,
        change=Change(variables={name: "3600"}),
    )


def _symmetric_memory(context: LaunchContext) -> Iterable[Hit]:
    name = "VLLM_USE_NCCL_SYMM_MEM"
    if context.variable(name).casefold() in _OFF:
        return NOTHING
    if context.value("--enforce-eager"):
        return NOTHING
    return hit(
        context,
        "NCCL's symmetric memory breaks the capture of graphs",
        variable=name,
        change=Change(variables={name: None}),
    )


def _dmabuf(context: LaunchContext) -> Iterable[Hit]:
    if context.variable("NCCL_DMABUF_ENABLE") != "1":
        return NOTHING
    message = "mlx5 drivers refuse dmabuf with errno 524 on some kernels"
    return hit(context, message, variable="NCCL_DMABUF_ENABLE")


PLACE_RULES: Final = (
    Rule(
        id="nodes-interface",
        severity=Severity.ERROR,
        about="several nodes do not say by which interface they reach each other",
        remedy="export NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME",
        source="vllm-project/vllm#7074, vllm-project/vllm#19045",
        check=_interfaces,
        failures=(47,),
    ),
    Rule(
        id="nodes-loopback",
        severity=Severity.ERROR,
        about="the interface between nodes is the loopback",
        remedy="name the interface that the nodes reach each other by",
        source="vllm-project/vllm#7074",
        check=_loopback,
        failures=(47,),
    ),
    Rule(
        id="nodes-local-address",
        absence=True,
        severity=Severity.ERROR,
        about="several nodes meet at the loopback",
        remedy="write the address of the first node behind --master-addr, or --dist-init-addr of "
        "SGLang and TokenSpeed",
        source="vLLM 0.33.0 config/parallel.py",
        check=_local_address,
    ),
    Rule(
        id="ready-timeout",
        severity=Severity.WARNING,
        about="the engine gives up before the weights are read",
        remedy="set VLLM_ENGINE_READY_TIMEOUT_S=3600",
        source="vllm-project/recipes Kimi-K3.yaml",
        check=_ready_timeout,
        engines=("vllm",),
    ),
    Rule(
        id="nccl-symmetric-memory",
        severity=Severity.WARNING,
        about="NCCL symmetric memory is on with graphs",
        remedy="leave VLLM_USE_NCCL_SYMM_MEM out",
        source="ai-dynamo/dynamo recipes/kimi-k3",
        check=_symmetric_memory,
        failures=(51,),
        engines=("vllm",),
    ),
    Rule(
        id="nccl-dmabuf",
        severity=Severity.WARNING,
        about="dmabuf is switched on for NCCL",
        remedy="set NCCL_DMABUF_ENABLE=0 where NCCL fails with errno 524",
        source="vllm-project/recipes Kimi-K3.yaml",
        check=_dmabuf,
        failures=(49,),
    ),
)
