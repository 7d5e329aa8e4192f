"""The router of two pools in a cluster: it finds each pool by the name of its Service."""

from typing import Any

from k31ctl.serve.containers import image_of
from k31ctl.serve.rollout import NodeValue, Rollout, Router


def router_documents(rollout: Rollout, router: Router) -> list[dict[str, Any]]:
    """Return the router's Deployment and Service."""
    name = f"{rollout.name}-router"
    words = [
        w.at(f"{rollout.name}-{w.where}-http") if isinstance(w, NodeValue) else w
        for w in router.words
    ]
    container = {
        "name": "router",
        "image": router.image or image_of(rollout),
        "command": [*router.program, *words],
        "ports": [{"name": "http", "containerPort": router.port}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": router.port}},
    }
    labels = {"app": name}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    port = {"name": "http", "port": router.port, "targetPort": router.port}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{name}-http", "labels": labels},
        "spec": {"selector": labels, "ports": [port]},
    }
    return [deployment, service]
