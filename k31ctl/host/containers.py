"""Container runtimes and how they give GPUs to containers."""

import re
from typing import Any, Final

from k31ctl.core.host import Containers
from k31ctl.host.probe import Missed, Probe
from k31ctl.outside_json import parsed

_VERSION: Final = re.compile(r"\d+\.\d+[\w.+~-]*")
_MARKS: Final = ("/.dockerenv", "/run/.containerenv")
_CDI_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")


def containers(probe: Probe) -> Containers:
    """Runtimes that are installed, and what Docker's daemon knows of GPUs."""
    runtimes = {}
    for tool in ("podman", "containerd"):
        if version := _version(probe, tool):
            runtimes[tool] = version
    docker, trouble = _docker(probe)
    if docker:
        runtimes["docker"] = str(docker.get("ServerVersion") or "unknown")
    elif trouble:
        runtimes["docker"] = "unknown"
    known = docker.get("Runtimes")
    return Containers(
        inside=_inside(probe),
        runtimes=dict(sorted(runtimes.items())),
        docker_runtimes=tuple(sorted(known)) if isinstance(known, dict) else (),
        toolkit=_version(probe, "nvidia-ctk"),
        cdi=any(_describes_gpus(probe, folder) for folder in _CDI_FOLDERS),
        docker_trouble=trouble,
    )


def _version(probe: Probe, tool: str) -> str:
    try:
        found = _VERSION.search(probe.run(tool, "--version"))
    except Missed:
        return ""
    return found[0] if found else "unknown"


def _docker(probe: Probe) -> tuple[dict[str, Any], str]:
    """What the daemon says of itself, and why it does not; both empty where there is no docker."""
    if not probe.has("docker"):
        return {}, ""
    try:
        told = parsed(probe.run("docker", "info", "--format", "{{json .}}"))
    except Missed as missed:
        return {}, missed.why
    except ValueError:
        return {}, "docker info prints something else than JSON"
    if not isinstance(told, dict):
        return {}, "docker info prints something else than it should"
    errors = told.get("ServerErrors")
    return (
        (told, "") if not errors else ({}, str(errors[0] if isinstance(errors, list) else errors))
    )


def _inside(probe: Probe) -> bool:
    if any(probe.exists(mark) for mark in _MARKS):
        return True
    try:
        groups = probe.text("/proc/1/cgroup", most_bytes=2**16)
    except Missed:
        return False
    return bool(re.search(r"docker|kubepods|containerd|libpod", groups))


def _describes_gpus(probe: Probe, folder: str) -> bool:
    for name in probe.names(folder):
        try:
            if re.search(r"kind\W+(nvidia|amd)\.com/gpu", probe.text(f"{folder}/{name}")):
                return True
        except Missed:
            continue
    return False
