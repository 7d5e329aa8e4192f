"""Compose files read: each service that starts an engine, and what its container is given."""

from collections.abc import Iterator
from typing import Final

from k31ctl.core.rules import Container, FileKind
from k31ctl.serve.read.carried import container_commands
from k31ctl.serve.read.docker import (
    LARGE_BYTES,
    cdi_gpus,
    gpu_count,
    has_cdi_gpus,
    size_bytes,
    tmpfs_bytes,
)
from k31ctl.serve.read.found import Assigned, FoundLaunch
from k31ctl.serve.read.yaml_graph import Value

_SHM: Final = "/dev/shm"
_UNLIMITED: Final = ("-1", "unlimited")


def compose_launches(document: Value) -> Iterator[FoundLaunch]:
    """Return what the services of a Compose file run."""
    services = document.get("services")
    for service in (services.fields() if services is not None else {}).values():
        yield from _service(service)


def _service(service: Value) -> Iterator[FoundLaunch]:
    image = service.text_at("image")
    environment = variables(service.get("environment"))
    container = _container(service, image)
    commands = container_commands(
        image,
        entry=service.get("entrypoint"),
        command=service.get("command"),
        environment=environment,
    )
    for each in commands:
        yield FoundLaunch(
            words=each.words,
            environment=each.environment,
            kind=FileKind.COMPOSE,
            container=container,
            images=(image,) if image else (),
            open_environment=each.open_environment or service.get("env_file") is not None,
        )


def variables(value: Value | None) -> dict[str, Assigned]:
    """Variables given as a mapping, or as a list of ``NAME=value``.

    Without a value they are those of whoever starts the service, which are not known.
    """
    if value is None:
        return {}
    pairs = [
        (name, each.text, each, each.start < each.end) for name, each in value.fields().items()
    ]
    for item in value.items():
        name, equals, text = item.text.partition("=")
        pairs.append((name, text, item, bool(equals)))
    return {
        name: Assigned(
            value=text,
            line=each.line,
            start=each.start,
            end=each.end,
            resolved=is_given and "$" not in text and "{{" not in text,
        )
        for name, text, each, is_given in pairs
        if name
    }


def _container(service: Value, image: str) -> Container:
    memlock = service.get("ulimits", "memlock")
    limits = (memlock.text, memlock.text_at("soft"), memlock.text_at("hard")) if memlock else ()
    devices = [item.text for value in (service.get("devices"),) if value for item in value.items()]
    reserved = service.get("deploy", "resources", "reservations", "devices")
    gpus = _reserved_gpus(reserved)
    asked = service.get("gpus")
    on_amd = any(text.startswith(("/dev/kfd", "/dev/dri")) for text in devices)
    has_gpus = bool(reserved and reserved.items()) or asked is not None or on_amd
    has_gpus = has_gpus or has_cdi_gpus(devices)
    if asked is not None:
        gpus = gpus if gpus is not None else gpu_count(asked.text)
    elif gpus is None:
        gpus = cdi_gpus(devices)
    return Container(
        image=image,
        shm_bytes=_shm_bytes(service),
        host_ipc=service.text_at("ipc") == "host",
        host_network=service.text_at("network_mode") == "host",
        privileged=service.text_at("privileged") == "true",
        memlock_unlimited=any(text in _UNLIMITED for text in limits),
        has_gpus=has_gpus or service.text_at("runtime") == "nvidia",
        gpus=gpus,
        rdma=any("infiniband" in text for text in devices),
        capabilities=_texts(service.get("cap_add")),
    )


def _reserved_gpus(devices: Value | None) -> int | None:
    for device in devices.items() if devices is not None else ():
        if ids := device.get("device_ids"):
            names = _texts(ids)
            return cdi_gpus(names) if has_cdi_gpus(names) else len(names)
        return gpu_count(device.text_at("count"))
    return None


def _shm_bytes(service: Value) -> int | None:
    """Bytes at /dev/shm, None where the service has the usual few."""
    found: list[int] = []
    if size := service.text_at("shm_size"):
        found.append(size_bytes(size) or LARGE_BYTES)
    if service.text_at("ipc").startswith(("service:", "container:")):
        found.append(LARGE_BYTES)
    mounts = service.get("tmpfs")
    for text in (mounts.text, *_texts(mounts)) if mounts is not None else ():
        found += [size for size in (tmpfs_bytes(text),) if size is not None]
    volumes = service.get("volumes")
    for volume in volumes.items() if volumes is not None else ():
        if volume.text_at("target") == _SHM or volume.text.split(":")[1:2] == [_SHM]:
            found.append(size_bytes(volume.text_at("tmpfs", "size")) or LARGE_BYTES)
    return max(found, default=None)


def _texts(value: Value | None) -> tuple[str, ...]:
    return tuple(item.text for item in value.items()) if value is not None else ()
