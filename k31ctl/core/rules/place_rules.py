"""Rules about where a launch runs: containers, pods, units, networks, images."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.rules.context import FileKind, LaunchContext
from k31ctl.core.rules.finding import Change, Severity
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit
from k31ctl.units import show_bytes

_SHM_NEEDED: Final = 8 << 30
_IN_CONTAINER: Final = (FileKind.DOCKER, FileKind.COMPOSE, FileKind.KUBERNETES)
_ENOUGH_STARTUP_S: Final = 900
_NICS: Final = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_ADDRESSES: Final = ("VLLM_HOST_IP", "SGLANG_HOST_IP", "NCCL_IB_HCA")
_OFF: Final = ("0", "false", "")


def _small_shm(context: LaunchContext) -> Iterable[Hit]:
    box = context.container
    if box is None or box.host_ipc or context.ranks == 1:
        return NOTHING
    if context.node is not None and context.kind is FileKind.COMMAND:
        return NOTHING
    way = {
        FileKind.COMPOSE: "add shm_size: 64gb, or ipc: host, to the service",
        FileKind.KUBERNETES: "mount an emptyDir of medium Memory, 64Gi, at /dev/shm",
    }.get(context.kind, "add --ipc=host, or --shm-size 64g")
    if box.shm_bytes is None:
        return hit(
            context,
            "the container has the usual 64 MB of /dev/shm, and NCCL ends with an unhandled "
            "system error",
            remedy=way,
        )
    if box.shm_bytes < _SHM_NEEDED:
        size = show_bytes(box.shm_bytes)
        message = f"/dev/shm of {size} is too small for NCCL and the workers' queues"
        return hit(context, message, remedy=way)
    return NOTHING


def _no_gpus(context: LaunchContext) -> Iterable[Hit]:
    box = context.container
    if box is None or box.has_gpus or box.privileged:
        return NOTHING
    way = {
        FileKind.COMPOSE: "reserve devices of driver nvidia, count all, under deploy.resources",
        FileKind.KUBERNETES: "set the limit nvidia.com/gpu, or amd.com/gpu",
    }.get(context.kind, "add --gpus all, or --device=/dev/kfd --device=/dev/dri")
    return hit(context, "the container is given no GPUs", remedy=way)


def _few_gpus(context: LaunchContext) -> Iterable[Hit]:
    box = context.container
    if box is None or box.gpus is None or not context.ranks:
        return NOTHING
    nodes = max(1, context.nodes, context.size("nnodes"))
    if context.ranks <= box.gpus * nodes:
        return NOTHING
    per = f" on each of {nodes} nodes" if nodes > 1 else ""
    message = f"the layout takes {context.ranks} GPUs and the container is given {box.gpus}{per}"
    return hit(context, message)


def _memlock(context: LaunchContext) -> Iterable[Hit]:
    box = context.container
    if box is None or context.kind not in (FileKind.DOCKER, FileKind.COMPOSE):
        return NOTHING
    moves = bool(context.fields("--kv-transfer-config")) or bool(context.role)
    if not (context.spans_nodes or moves or box.rdma) or box.memlock_unlimited or box.privileged:
        return NOTHING
    way = {FileKind.COMPOSE: "add ulimits: {memlock: -1, stack: 67108864} to the service"}
    return hit(
        context,
        "RDMA registers memory, and the container may lock only 64 KiB of it",
        remedy=way.get(context.kind, "add --ulimit memlock=-1 --ulimit stack=67108864"),
    )


def _ipc_lock(context: LaunchContext) -> Iterable[Hit]:
    box = context.container
    if box is None or context.kind is not FileKind.KUBERNETES or not box.rdma:
        return NOTHING
    if box.privileged or "IPC_LOCK" in box.capabilities:
        return NOTHING
    return hit(context, "the pod has an RDMA device and may not lock memory for it")


def _unit_memlock(context: LaunchContext) -> Iterable[Hit]:
    if context.kind is not FileKind.SYSTEMD or not context.spans_nodes:
        return NOTHING
    box = context.container
    if box is not None and box.memlock_unlimited:
        return NOTHING
    return hit(context, "RDMA registers memory, and the unit may lock only a little of it")


def _interfaces(context: LaunchContext) -> Iterable[Hit]:
    if context.kind is FileKind.COMMAND or context.size("nnodes") == 1:
        return NOTHING
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
    return hit(context, f"{names[0]} names the loopback", variable=names[0])


def _local_address(context: LaunchContext) -> Iterable[Hit]:
    flags = ("--master-addr", "--dist-init-addr", "--data-parallel-address")
    if context.wrapped:
        return NOTHING
    for flag in flags:
        host = context.text(flag).rpartition(":")[0] or context.text(flag)
        if host in ("localhost", "127.0.0.1") and context.size("nnodes") > 1:
            message = f"{flag} is the loopback, which other nodes do not reach"
            return hit(context, message, flag)
    if context.name == "vllm" and context.size("nnodes") > 1 and not context.has("--master-addr"):
        message = "--nnodes without --master-addr meets at 127.0.0.1"
        return hit(context, message, "--nnodes")
    return NOTHING


def _day0_image(context: LaunchContext) -> Iterable[Hit]:
    image = context.container.image if context.container is not None else ""
    name, _, tag = image.rpartition(":")
    if tag != "kimi-k3" or not name.endswith(("vllm-openai", "vllm-openai_rocm")):
        return NOTHING
    message = f"{image} is the build of the first day: it misses fixes and is not kept up"
    return hit(context, message)


def _floating_image(context: LaunchContext) -> Iterable[Hit]:
    image = context.container.image if context.container is not None else ""
    _, colon, tag = image.rpartition(":")
    floats = bool(image) and "@sha256" not in image
    if not floats or (colon and "/" not in tag and tag not in ("latest", "nightly", "dev")):
        return NOTHING
    if "$" in image:
        return NOTHING
    return hit(context, f"{image} is whatever was built last: flags and kernels change under it")


def _startup_probe(context: LaunchContext) -> Iterable[Hit]:
    box = context.container
    if box is None or box.startup_seconds is None or not context.is_k3:
        return NOTHING
    if box.startup_seconds >= _ENOUGH_STARTUP_S:
        return NOTHING
    return hit(
        context,
        f"the server is given {box.startup_seconds:g} s to start, and 1.5 TB of weights take "
        "longer: it is killed while it loads",
    )


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


def _host_memory(context: LaunchContext) -> Iterable[Hit]:
    box, model = context.container, context.model
    if box is None or box.host_memory_bytes is None or model is None or not context.is_k3:
        return NOTHING
    if box.host_memory_bytes >= 200 << 30:
        return NOTHING
    size = show_bytes(box.host_memory_bytes)
    return hit(context, f"{size} of host memory do not carry the loading of 1.5 TB of weights")


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


def _lost_shm(context: LaunchContext) -> Iterable[Hit]:
    box = context.container
    if box is None or not box.host_ipc or context.dp < 8:  # noqa: PLR2004
        return NOTHING
    return hit(context, "segments of crashed ranks stay in the host's /dev/shm until it is full")


def _dmabuf(context: LaunchContext) -> Iterable[Hit]:
    if context.variable("NCCL_DMABUF_ENABLE") != "1":
        return NOTHING
    message = "mlx5 drivers refuse dmabuf with errno 524 on some kernels"
    return hit(context, message, variable="NCCL_DMABUF_ENABLE")


PLACE_RULES: Final = (
    Rule(
        id="container-shm",
        severity=Severity.ERROR,
        about="a container with several ranks has too little /dev/shm",
        remedy="give it the host IPC namespace or more /dev/shm",
        source="vllm-project/production-stack#276, NVIDIA/nccl#290",
        check=_small_shm,
        failures=(45,),
    ),
    Rule(
        id="container-gpus",
        severity=Severity.ERROR,
        about="the container is given no GPUs",
        remedy="give it the GPUs",
        source="documentation of the NVIDIA container toolkit",
        check=_no_gpus,
    ),
    Rule(
        id="container-few-gpus",
        severity=Severity.ERROR,
        about="the container is given fewer GPUs than the layout takes",
        remedy="give it as many GPUs as the layout takes",
        source="documentation of the NVIDIA container toolkit",
        check=_few_gpus,
    ),
    Rule(
        id="container-memlock",
        severity=Severity.WARNING,
        about="a container that moves memory by RDMA may not lock it",
        remedy="allow it to lock memory",
        source="NCCL documentation, troubleshooting",
        check=_memlock,
    ),
    Rule(
        id="pod-ipc-lock",
        severity=Severity.WARNING,
        about="a pod with an RDMA device may not lock memory",
        remedy="add the capability IPC_LOCK",
        source="ai-dynamo/dynamo recipes/kimi-k3; llm-d guides",
        check=_ipc_lock,
    ),
    Rule(
        id="unit-memlock",
        severity=Severity.WARNING,
        about="a unit of several nodes may not lock memory",
        remedy="add LimitMEMLOCK=infinity under [Service]",
        source="NCCL documentation, troubleshooting",
        check=_unit_memlock,
    ),
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
        remedy="write the address of the first node",
        source="vLLM 0.33.0 config/parallel.py",
        check=_local_address,
    ),
    Rule(
        id="image-first-day",
        severity=Severity.WARNING,
        about="the image is the build of the first day",
        remedy="use vllm/vllm-openai:v0.33.0",
        source="vllm-project/vllm#51975, vllm-project/recipes#698",
        check=_day0_image,
        failures=(1, 2, 7),
    ),
    Rule(
        id="image-floating",
        severity=Severity.INFO,
        about="the image has no fixed tag",
        remedy="name a release, such as :v0.33.0",
        source="docker documentation",
        check=_floating_image,
    ),
    Rule(
        id="startup-probe",
        severity=Severity.ERROR,
        about="the start is cut short by a probe or a time limit",
        remedy="allow at least two hours",
        source="llm-d guides; ai-dynamo/dynamo recipes/kimi-k3",
        check=_startup_probe,
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
        id="host-memory",
        severity=Severity.WARNING,
        about="the container has too little host memory to load the weights",
        remedy="give it 700 GiB for eight GPUs",
        source="NVIDIA/TensorRT-LLM#17999; ai-dynamo/dynamo recipes/kimi-k3",
        check=_host_memory,
        failures=(29,),
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
        id="shm-left-behind",
        severity=Severity.INFO,
        about="many ranks share the /dev/shm of the host",
        remedy="clear /dev/shm before the start",
        source="llm-d/llm-d#352",
        check=_lost_shm,
        failures=(46,),
    ),
    Rule(
        id="nccl-dmabuf",
        severity=Severity.INFO,
        about="dmabuf is switched on for NCCL",
        remedy="set NCCL_DMABUF_ENABLE=0 where NCCL fails with errno 524",
        source="vllm-project/recipes Kimi-K3.yaml",
        check=_dmabuf,
        failures=(49,),
    ),
)
