"""A launch as a LeaderWorkerSet: one group of pods is one server, its leader answers."""

from typing import Any, Final

from k31ctl.serve.containers import (
    CACHE_FOLDER,
    HUB_FOLDER,
    MODEL_FOLDER,
    container_variables,
    image_of,
    model_in_container,
    probe,
)
from k31ctl.serve.files import LaunchFile, heading, reasons, yaml_text
from k31ctl.serve.kubernetes_router import router_documents
from k31ctl.serve.rollout import NodeValue, Rollout, Server, Where, Word

_GIB: Final = 2**30
_ROOM: Final = 1.2
_PLACES: Final = {
    Where.RANK: "$(LWS_WORKER_INDEX)",
    Where.HEAD: "$(LWS_LEADER_ADDRESS)",
    Where.NODE_ADDRESS: "$(POD_IP)",
}
DEFAULT_INTERFACE: Final = "eth0"
_BOOTSTRAP: Final = "--disaggregation-bootstrap-port"
_GRACE_S: Final = 120


def kubernetes_files(rollout: Rollout) -> tuple[LaunchFile, ...]:
    """Return one manifest: storage, a LeaderWorkerSet and a Service for each server."""
    documents: list[dict[str, Any]] = [] if rollout.weights.folder else [claim(rollout)]
    lines = heading(rollout)
    for server in rollout.servers:
        documents += [_group(rollout, server), _service(rollout, server)]
        lines += reasons(server)
    if rollout.router is not None:
        documents += router_documents(rollout, rollout.router)
    text = "\n".join([*lines, yaml_text(*documents)])
    return (LaunchFile(path="kubernetes.yaml", text=text),)


def claim(rollout: Rollout) -> dict[str, Any]:
    """A volume that every node reads and that holds the checkpoint."""
    size = -(-int(rollout.weights.num_bytes * _ROOM) // _GIB)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{rollout.name}-hub"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": f"{size}Gi"}},
        },
    }


def _group(rollout: Rollout, server: Server) -> dict[str, Any]:
    name = f"{rollout.name}-{server.name}"
    template: dict[str, Any] = {
        "size": server.num_nodes,
        "restartPolicy": "RecreateGroupOnPodRestart",
    }
    if server.num_nodes > 1:
        template["leaderTemplate"] = _pod(rollout, server, follower=False)
    template["workerTemplate"] = _pod(rollout, server, follower=server.num_nodes > 1)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": 1,
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": template,
        },
    }


def _service(rollout: Rollout, server: Server) -> dict[str, Any]:
    name = f"{rollout.name}-{server.name}"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{name}-http", "labels": {"app": name}},
        "spec": {
            "selector": {
                "leaderworkerset.sigs.k8s.io/name": name,
                "leaderworkerset.sigs.k8s.io/worker-index": "0",
            },
            "ports": [{"name": n, "port": p, "targetPort": p} for n, p in _ports(server).items()],
        },
    }


def _ports(server: Server) -> dict[str, int]:
    """Ports that others reach; decode servers find a prefill server by its bootstrap port."""
    bootstrap = next((c.value for c in server.choices if c.flag == _BOOTSTRAP), None)
    ports = {"http": server.port}
    return {**ports, "bootstrap": bootstrap} if isinstance(bootstrap, int) else ports


def _pod(rollout: Rollout, server: Server, *, follower: bool) -> dict[str, Any]:
    annotations = {
        "prometheus.io/scrape": "true",
        "prometheus.io/path": "/metrics",
        "prometheus.io/port": str(server.metrics_port),
    }
    labels = {"app": f"{rollout.name}-{server.name}"}
    spec = pod_spec(
        rollout,
        server,
        follower=follower,
        arguments=command_words(rollout, server, follower=follower),
    )
    metadata: dict[str, Any] = {"labels": labels}
    if not follower:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec}


def pod_spec(
    rollout: Rollout, server: Server, *, follower: bool, arguments: list[str]
) -> dict[str, Any]:
    """The pod of one node; several nodes, and two pools, use the host's network, where RDMA is."""
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": _GRACE_S,
        "containers": [_container(rollout, server, follower=follower, arguments=arguments)],
        "volumes": _volumes(rollout, server),
    }
    if rollout.num_nodes > 1:
        spec = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet", **spec}
    return spec


def command_words(rollout: Rollout, server: Server, *, follower: bool) -> list[str]:
    """The command of a node as Kubernetes wants it written."""
    words = server.words(model_in_container(rollout), follower=follower)
    multiples = [w for w in words if isinstance(w, NodeValue) and w.times > 1]
    if not multiples:
        return [argument(word, rollout) for word in words]
    # Kubernetes multiplies nothing, so a shell adds the words that need it.
    added = []
    kept: list[str] = []
    for before, word in zip(("", *words), words, strict=False):
        if isinstance(word, NodeValue) and word.times > 1:
            kept.pop()
            added.append(f'{before} "$$((LWS_WORKER_INDEX * {word.times}))"')
        else:
            kept.append(argument(word, rollout))
    return ["/bin/bash", "-c", f'exec "$$@" {" ".join(added)}', server.name, *kept]


def argument(word: Word, rollout: Rollout) -> str:
    """A word in which Kubernetes sees no variable but its own."""
    if not isinstance(word, NodeValue):
        return word.replace("$", "$$")
    if word.where is Where.INTERFACE:
        return word.at((rollout.interface or DEFAULT_INTERFACE).replace("$", "$$"))
    return f"{word.before}{_PLACES[word.where]}{word.after}"


def _container(
    rollout: Rollout, server: Server, *, follower: bool, arguments: list[str]
) -> dict[str, Any]:
    gpu = "amd.com/gpu" if rollout.amd else "nvidia.com/gpu"
    own = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    fixed = container_variables(rollout, server)
    variables = [{"name": name, "value": value} for name, value in fixed.items()]
    variables += [{"name": v.name, "value": argument(v.value, rollout)} for v in server.variables]
    found: dict[str, Any] = {
        "name": server.name,
        "image": image_of(rollout),
        "command": arguments,
        "env": [own, *variables],
        "resources": {"limits": {gpu: server.gpus_per_node}},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": _mounts(rollout),
    }
    if not follower:
        found["ports"] = [{"name": "http", "containerPort": server.port}]
        found |= _probes(server)
    return found


def _probes(server: Server) -> dict[str, Any]:
    asked = probe(server)
    request = {"httpGet": {"path": asked.path, "port": asked.port}, "periodSeconds": asked.period_s}
    return {
        "startupProbe": {**request, "timeoutSeconds": 5, "failureThreshold": asked.start_failures},
        "readinessProbe": {**request, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {**request, "timeoutSeconds": 10, "failureThreshold": 12},
    }


def _mounts(rollout: Rollout) -> list[dict[str, Any]]:
    weights: dict[str, Any] = {"name": "weights", "mountPath": HUB_FOLDER}
    if rollout.weights.folder is not None:
        weights = {"name": "weights", "mountPath": MODEL_FOLDER, "readOnly": True}
    return [
        weights,
        {"name": "shared-memory", "mountPath": "/dev/shm"},
        {"name": "kernel-caches", "mountPath": CACHE_FOLDER},
    ]


def _volumes(rollout: Rollout, server: Server) -> list[dict[str, Any]]:
    weights: dict[str, Any] = {"persistentVolumeClaim": {"claimName": f"{rollout.name}-hub"}}
    if rollout.weights.folder is not None:
        weights = {"hostPath": {"path": rollout.weights.folder, "type": "Directory"}}
    shared = f"{server.shared_memory_bytes // _GIB}Gi"
    caches = f"/var/cache/{rollout.name}"
    return [
        {"name": "weights", **weights},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": shared}},
        {"name": "kernel-caches", "hostPath": {"path": caches, "type": "DirectoryOrCreate"}},
    ]
