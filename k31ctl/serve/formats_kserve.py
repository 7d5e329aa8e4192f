"""A launch as KServe's LLMInferenceService: it brings the route and the scheduler of requests.

The pods run the command that is written here; nobody has published one for this model, so the
manifest is unverified. KServe mounts the checkpoint at a place of its own.
"""

from dataclasses import replace
from typing import Any, Final

from k31ctl.errors import UsageError
from k31ctl.serve.files import LaunchFile, heading, reasons, yaml_text
from k31ctl.serve.formats_kubernetes import command_words, pod_spec
from k31ctl.serve.rollout import Rollout, Server

_MOUNT: Final = "/mnt/models"
_OF_KSERVE: Final = ("weights",)
_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")


def kserve_files(rollout: Rollout) -> tuple[LaunchFile, ...]:
    """Return one manifest; raises UsageError where KServe cannot get the weights or the engine."""
    if rollout.weights.folder is not None:
        raise UsageError(
            "KServe gets the checkpoint by its address, not from a folder of the node",
            where="--model-path",
            remedy="leave it out, or use --as kubernetes",
        )
    if rollout.engine != "vllm" or len(rollout.servers) > 1:
        raise UsageError(
            "KServe's service is written for one server of vLLM",
            where="--as kserve",
            remedy="use --engine vllm, or --as kubernetes",
        )
    (server,) = rollout.servers
    lines = [*heading(rollout), "# warning: unverified with KServe", *reasons(server)]
    text = "\n".join([*lines, yaml_text(_service(rollout, server))])
    return (LaunchFile(path="kserve.yaml", text=text),)


def _service(rollout: Rollout, server: Server) -> dict[str, Any]:
    layout = server.plan.layout
    parallelism: dict[str, Any] = {"tensor": layout.tp, "pipeline": layout.pp}
    if layout.dp > 1:
        local = layout.gpus_per_node // (layout.tp * layout.pp)
        parallelism |= {"data": layout.dp, "dataLocal": local, "expert": layout.ep > 1}
    spec: dict[str, Any] = {
        "model": {"uri": f"hf://{rollout.weights.repository}", "name": rollout.served_name},
        "replicas": 1,
        "parallelism": parallelism,
        "router": {"gateway": {}, "route": {}, "scheduler": {}},
        "template": _pod(rollout, server, follower=False),
    }
    if server.num_nodes > 1:
        spec["worker"] = _pod(rollout, server, follower=True)
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "LLMInferenceService",
        "metadata": {"name": rollout.name},
        "spec": spec,
    }


def _pod(rollout: Rollout, server: Server, *, follower: bool) -> dict[str, Any]:
    inside = replace(rollout, weights=replace(rollout.weights, repository=_MOUNT))
    words = command_words(inside, server, follower=follower)
    spec = pod_spec(rollout, server, follower=follower, arguments=words)
    (container,) = spec["containers"]
    container["name"] = "main"
    container["env"] = [v for v in container["env"] if v["name"] != "HF_HOME"]
    container["volumeMounts"] = [
        m for m in container["volumeMounts"] if m["name"] not in _OF_KSERVE
    ]
    spec["volumes"] = [v for v in spec["volumes"] if v["name"] not in _OF_KSERVE]
    for name in _PROBES:
        if name in container:
            container[name]["httpGet"] = {**container[name]["httpGet"], "scheme": "HTTP"}
    return spec
