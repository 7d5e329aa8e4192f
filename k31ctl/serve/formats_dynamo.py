"""A launch as NVIDIA Dynamo's graph: a front end that routes by cached prefixes, and a worker.

Dynamo's operator gives ranks and addresses to the nodes of a worker. Where NVLink crosses nodes a
ComputeDomain opens it to the pods.
"""

from typing import Any, Final

from k31ctl.serve.containers import image_of, model_in_container
from k31ctl.serve.dynamo_settings import FRONT_PORT
from k31ctl.serve.files import LaunchFile, heading, reasons, yaml_text
from k31ctl.serve.formats_kubernetes import argument, claim, pod_spec
from k31ctl.serve.rollout import Rollout, Server

_GIB: Final = 2**30
_SYSTEM_PORT: Final = 9090
_START_FAILURES: Final = 720
_PERIOD_S: Final = 10
_CHANNEL: Final = "nvlink-channel"


def dynamo_files(rollout: Rollout) -> tuple[LaunchFile, ...]:
    """Return one manifest: storage, a ComputeDomain where NVLink crosses nodes, the graph."""
    documents: list[dict[str, Any]] = [] if rollout.weights.folder else [claim(rollout)]
    lines = heading(rollout)
    if any(_crosses(server) for server in rollout.servers):
        documents.append(_domain(rollout))
    documents.append(_graph(rollout))
    for server in rollout.servers:
        lines += reasons(server)
    text = "\n".join([*lines, yaml_text(*documents)])
    return (LaunchFile(path="dynamo.yaml", text=text),)


def _crosses(server: Server) -> bool:
    """Whether NVLink joins the GPUs of several nodes."""
    node = server.plan.parts.node
    return server.num_nodes > 1 and node.scale_up_domain_gpus > node.num_gpus


def _domain(rollout: Rollout) -> dict[str, Any]:
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": rollout.name},
        "spec": {
            "numNodes": 0,
            "channel": {
                "allocationMode": "Single",
                "resourceClaimTemplate": {"name": f"{rollout.name}-channel"},
            },
        },
    }


def _graph(rollout: Rollout) -> dict[str, Any]:
    return {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": rollout.name},
        "spec": {
            "backendFramework": rollout.engine,
            "components": [
                _frontend(rollout),
                *(_worker(rollout, server) for server in rollout.servers),
            ],
        },
    }


def _worker(rollout: Rollout, server: Server) -> dict[str, Any]:
    """One server: a worker for everything, or the prefill or decode workers of two pools."""
    kind = "worker" if len(rollout.servers) == 1 else server.name
    worker: dict[str, Any] = {
        "name": kind.capitalize(),
        "type": kind,
        "replicas": 1,
        "sharedMemorySize": f"{server.shared_memory_bytes // _GIB}Gi",
        "podTemplate": {"spec": _worker_pod(rollout, server)},
    }
    if server.num_nodes > 1:
        worker["multinode"] = {"nodeCount": server.num_nodes}
    return worker


def _frontend(rollout: Rollout) -> dict[str, Any]:
    routing = ["--router-mode", "kv", "--http-port", str(FRONT_PORT)]
    container = {
        "name": "main",
        "image": image_of(rollout),
        "command": ["python3", "-m", "dynamo.frontend", *routing],
    }
    return {
        "name": "Frontend",
        "type": "frontend",
        "replicas": 1,
        "podTemplate": {"spec": {"containers": [container]}},
    }


def _worker_pod(rollout: Rollout, server: Server) -> dict[str, Any]:
    words = server.words(model_in_container(rollout), follower=False)
    arguments = [argument(word, rollout) for word in words]
    spec = pod_spec(rollout, server, follower=True, arguments=arguments)
    (container,) = spec["containers"]
    container["name"] = "main"
    container |= _probes()
    # Dynamo mounts shared memory of its own, by sharedMemorySize.
    container["volumeMounts"] = [
        m for m in container["volumeMounts"] if m["name"] != "shared-memory"
    ]
    spec["volumes"] = [v for v in spec["volumes"] if v["name"] != "shared-memory"]
    if _crosses(server):
        channel = {"name": _CHANNEL, "resourceClaimTemplateName": f"{rollout.name}-channel"}
        spec["resourceClaims"] = [channel]
        container["resources"]["claims"] = [{"name": _CHANNEL}]
    return spec


def _probes() -> dict[str, Any]:
    def asked(path: str, failures: int) -> dict[str, Any]:
        return {
            "httpGet": {"path": path, "port": _SYSTEM_PORT},
            "periodSeconds": _PERIOD_S,
            "failureThreshold": failures,
        }

    return {
        "startupProbe": asked("/live", _START_FAILURES),
        "readinessProbe": asked("/health", 6),
        "livenessProbe": asked("/live", 12),
    }
