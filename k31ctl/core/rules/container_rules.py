"""Rules about what a launch is given: containers, pods, units, images."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import SIZE_FLAGS, FileKind, LaunchContext
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit
from k31ctl.units import show_bytes

_MANY_GROUPS: Final = 8
_SHM_NEEDED: Final = 8 << 30
_ENOUGH_STARTUP_S: Final = 900
_BY_UNIT: Final = ("TimeoutStartSec", "write TimeoutStartSec=2h, or more")
_BY_PROBE: Final = (
    "the startupProbe, or the livenessProbe where there is none,",
    "add a startupProbe of periodSeconds: 10 and failureThreshold: 720, which are two hours",
)


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
    if box is None or box.gpus is None or not context.ranks or not context.nodes:
        return NOTHING
    nodes = context.most_nodes
    if context.ranks <= box.gpus * nodes:
        return NOTHING
    per = f" on each of {nodes} nodes" if nodes > 1 else ""
    message = f"the layout takes {context.ranks} GPUs and the container is given {box.gpus}{per}"
    way = {
        FileKind.COMPOSE: "write count: all, or as many device_ids, under deploy.resources",
        FileKind.KUBERNETES: "raise the limit nvidia.com/gpu, or amd.com/gpu, under resources",
    }.get(context.kind, "write --gpus all, or name as many GPUs")
    return hit(context, message, *SIZE_FLAGS, remedy=f"{way}; or use a smaller layout")


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


def _day0_image(context: LaunchContext) -> Iterable[Hit]:
    image = context.container.image if context.container is not None else ""
    name, _, tag = image.rpartition(":")
    if tag != "kimi-k3" or not name.endswith(("vllm-openai", "vllm-openai_rocm")):
        return NOTHING
    message = f"image {image} is the build of the first day: it misses fixes and is not kept up"
    return hit(context, message)


def _floating_image(context: LaunchContext) -> Iterable[Hit]:
    image = context.container.image if context.container is not None else ""
    _, colon, tag = image.rpartition(":")
    floats = bool(image) and "@sha256" not in image
    if not floats or (colon and "/" not in tag and tag not in ("latest", "nightly", "dev")):
        return NOTHING
    if "$" in image:
        return NOTHING
    return hit(
        context, f"image {image} is whatever was built last: flags and kernels change under it"
    )


def _startup_probe(context: LaunchContext) -> Iterable[Hit]:
    box = context.container
    if box is None or box.startup_seconds is None or not context.is_k3:
        return NOTHING
    if box.startup_seconds >= _ENOUGH_STARTUP_S:
        return NOTHING
    limit, way = _BY_UNIT if context.kind is FileKind.SYSTEMD else _BY_PROBE
    return hit(
        context,
        f"{limit} gives the server {box.startup_seconds:g} s to start, and 1.5 TB of weights take "
        "longer: it is killed while it loads",
        remedy=way,
    )


def _lost_shm(context: LaunchContext) -> Iterable[Hit]:
    box = context.container
    if box is None or not box.host_ipc or context.kind is FileKind.SYSTEMD:
        return NOTHING  # a unit has no other /dev/shm than the host's
    local = int(context.number("--data-parallel-size-local", 0))
    groups = local or -(-context.dp // context.most_nodes)
    if groups < _MANY_GROUPS:
        return NOTHING
    return hit(
        context, "segments of crashed ranks stay in the host's /dev/shm (host IPC) until it is full"
    )


CONTAINER_RULES: Final = (
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
        remedy="add IPC_LOCK to securityContext.capabilities.add of the container",
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
        id="shm-left-behind",
        severity=Severity.WARNING,
        about="many groups of ranks in a container share the /dev/shm of the host",
        remedy="clear /dev/shm before the start, or give the container its own: --shm-size, "
        "shm_size or an emptyDir in place of the host's IPC",
        source="llm-d/llm-d#352",
        check=_lost_shm,
        failures=(46,),
    ),
)
