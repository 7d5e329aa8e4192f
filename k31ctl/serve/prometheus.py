"""The scrape configuration of a launch."""

from typing import Final

from k31ctl.serve.files import LaunchFile, heading, yaml_text
from k31ctl.serve.rollout import Rollout

_THIS_HOST: Final = "127.0.0.1"


def prometheus_file(rollout: Rollout) -> LaunchFile:
    """Return the file that tells Prometheus where each server shows its metrics."""
    configs = []
    for server in rollout.servers:
        host = rollout.host(server, 0) or _THIS_HOST
        configs.append(
            {
                "job_name": f"{rollout.name}-{server.name}",
                "metrics_path": "/metrics",
                "scrape_interval": "15s",
                "static_configs": [{"targets": [f"{host}:{server.metrics_port}"]}],
            }
        )
    text = "\n".join([*heading(rollout), yaml_text({"scrape_configs": configs})])
    return LaunchFile(path="prometheus.yaml", text=text)
