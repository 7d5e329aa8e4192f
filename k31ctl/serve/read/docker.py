"""``docker run`` read: what the container is given, and the command that runs in it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from k31ctl.core.rules import Container
from k31ctl.serve.read.found import Assigned, SourceWord
from k31ctl.values import frozen

LARGE_BYTES: Final = 1 << 40
_SHM: Final = "/dev/shm"
_CDI_GPU: Final = re.compile(r"(?:nvidia|amd)\.com/gpu=")
_PROGRAMS: Final = ("docker", "podman", "nerdctl")
_ALONE: Final = ("-d", "-i", "-t", "-it", "-ti", "-dit", "-itd", "-id", "-di", "-P", "-q")
_ALONE_LONG: Final = (
    "--detach",
    "--interactive",
    "--tty",
    "--rm",
    "--privileged",
    "--init",
    "--read-only",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--sig-proxy",
    "--publish-all",
    "--quiet",
    "--replace",
)
_SHELL_ENTRY: Final = ("bash", "sh", "/bin/bash", "/bin/sh")


@frozen
class DockerRun:
    """A container that is started: what it is given, and its command with its variables."""

    container: Container
    words: tuple[SourceWord, ...]
    environment: dict[str, Assigned]
    open_environment: bool


def docker_run(words: Sequence[SourceWord]) -> DockerRun | None:
    """Return the container that these words start, None where they start none."""
    at = _run_at(words)
    if at is None:
        return None
    options: list[tuple[str, SourceWord | None]] = []
    while at < len(words) and words[at].text.startswith("-"):
        name, equals, _ = words[at].text.partition("=")
        if equals and name.startswith("--"):
            options.append((name, replace(words[at], text=words[at].text[len(name) + 1 :])))
        elif words[at].text in (*_ALONE, *_ALONE_LONG):
            options.append((words[at].text, None))
        elif at + 1 < len(words):
            options.append((words[at].text, words[at + 1]))
            at += 1
        at += 1
    if at >= len(words):
        return None
    given = [(name, word) for name, word in options if word is not None]
    entry = next((word for name, word in given if name == "--entrypoint"), None)
    command = tuple(words[at + 1 :])
    return DockerRun(
        container=_container(words[at].text, options),
        words=with_entrypoint(words[at].text, command, entry=(entry,) if entry else None),
        environment=_environment(given),
        open_environment=any(name == "--env-file" for name, _ in options),
    )


def with_entrypoint(
    image: str, command: tuple[SourceWord, ...], *, entry: tuple[SourceWord, ...] | None
) -> tuple[SourceWord, ...]:
    """The words that run in a container: the image's own entry point, or the one given, first.

    Of the images that serve, those of vLLM's server enter ``vllm serve``.
    """
    if entry is not None:
        return (*entry, *command)
    name = image.rpartition("/")[2].partition(":")[0].partition("@")[0]
    if not name.startswith("vllm-openai"):
        return command
    first = command[0].text if command else ""
    if first in ("vllm", "serve", *_SHELL_ENTRY) or first.rpartition("/")[2].startswith("python"):
        return command
    line = command[0].line if command else 0
    return (*(SourceWord(text=text, line=line) for text in ("vllm", "serve")), *command)


def size_bytes(text: str) -> int | None:
    """Bytes of a size as container tools write it (``64g``, ``16gb``, ``64Gi``), None if none."""
    text = text.strip().lower().removesuffix("b")
    scale = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
    text = text.removesuffix("i")
    unit = scale.get(text[-1:], 0)
    try:
        return int(float(text[:-1]) * unit) if unit else int(text)
    except (ValueError, OverflowError):
        return None


def _run_at(words: Sequence[SourceWord]) -> int | None:
    for at, word in enumerate(words[:12]):
        if word.text.rpartition("/")[2] in _PROGRAMS:
            rest = [w.text for w in words[at + 1 : at + 4]]
            if "run" in rest:
                return at + 2 + rest.index("run")
    return None


def _environment(given: Sequence[tuple[str, SourceWord]]) -> dict[str, Assigned]:
    found = {}
    for option, word in given:
        if option in ("-e", "--env"):
            name, equals, value = word.text.partition("=")
            found[name] = Assigned(
                value=value, line=word.line, resolved=word.resolved and bool(equals)
            )
    return found


def _container(image: str, options: Sequence[tuple[str, SourceWord | None]]) -> Container:
    def values(*names: str) -> list[str]:
        return [w.text for name, w in options if name in names and w is not None]

    has = {name for name, _ in options}
    devices, gpus = values("--device"), values("--gpus")
    limits = [text.partition("=") for text in values("--ulimit")]
    on_amd = any(text.startswith(("/dev/kfd", "/dev/dri")) for text in devices)
    has_gpus = bool(gpus) or on_amd or has_cdi_gpus(devices) or "nvidia" in values("--runtime")
    return Container(
        image=image,
        shm_bytes=_shm_bytes(values),
        host_ipc=values("--ipc")[-1:] == ["host"],
        host_network="host" in (*values("--network"), *values("--net")),
        privileged="--privileged" in has,
        memlock_unlimited=any(n == "memlock" and v.startswith("-1") for n, _, v in limits),
        has_gpus=has_gpus or "$" in str(options),
        gpus=gpu_count(gpus[-1]) if gpus else cdi_gpus(devices),
        rdma=any("infiniband" in text for text in devices),
        capabilities=tuple(values("--cap-add")),
    )


def _shm_bytes(values: Callable[..., list[str]]) -> int | None:
    """Bytes at /dev/shm, None where the container has the usual few."""
    found: list[int] = []
    found += [size_bytes(text) or LARGE_BYTES for text in values("--shm-size")]
    found += [mounted for text in values("--tmpfs") if (mounted := tmpfs_bytes(text))]
    volumes = [text.split(":") for text in values("-v", "--volume")]
    found += [LARGE_BYTES for parts in volumes if _SHM in parts[1:2]]
    if any(re.search(r"(?:target|destination|dst)=/dev/shm(?:,|$)", t) for t in values("--mount")):
        found.append(LARGE_BYTES)
    if any(text.startswith("container:") for text in values("--ipc")):
        found.append(LARGE_BYTES)
    return max(found, default=None)


def tmpfs_bytes(text: str) -> int | None:
    """Bytes of a ``/dev/shm:size=64g``, None where something else is mounted."""
    path, _, options = text.partition(":")
    if path.rstrip("/") != _SHM:
        return None
    given = [each.removeprefix("size=") for each in options.split(",") if each.startswith("size=")]
    return (size_bytes(given[-1]) if given else None) or LARGE_BYTES


def has_cdi_gpus(devices: Sequence[str]) -> bool:
    """Whether devices that are named by the container device interface are GPUs."""
    return any(_CDI_GPU.match(text) for text in devices)


def cdi_gpus(devices: Sequence[str]) -> int | None:
    """How many GPUs such devices are, None for all of them, or where there are none."""
    names = {text.partition("=")[2] for text in devices if _CDI_GPU.match(text)}
    return len(names) if names and all(name.isdigit() for name in names) else None


def gpu_count(text: str) -> int | None:
    """How many GPUs ``--gpus`` gives, None for all of them or where it cannot be told."""
    text = text.strip("\"'")
    if text.isdigit():
        return int(text)
    if text.startswith("device="):
        return len(text.removeprefix("device=").split(","))
    return None
