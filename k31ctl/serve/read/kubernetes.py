"""Kubernetes manifests read: each container that starts an engine, and what its pod is given."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from k31ctl.core.rules import Container, FileKind
from k31ctl.serve.read.carried import container_commands
from k31ctl.serve.read.docker import size_bytes
from k31ctl.serve.read.found import Assigned, FoundLaunch, SourceWord, relocated
from k31ctl.serve.read.shell import shell_commands
from k31ctl.serve.read.shell_text import may_start
from k31ctl.serve.read.unclosed import require_closed
from k31ctl.serve.read.yaml_graph import Value, mappings

_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu")
_LARGE: Final = 1 << 40
_NODE_COUNTS: Final = (("leaderWorkerTemplate", "size"), ("multinode", "nodeCount"))
_GROUP_SIZE: Final = "LWS_GROUP_SIZE"
_LAYOUT: Final = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
    "dataLocal": "--data-parallel-size-local",
}


def kubernetes_launches(document: Value) -> Iterator[FoundLaunch]:
    """Return what the containers of a manifest run."""
    kind = document.text_at("kind")
    if kind == "ConfigMap":
        yield from _scripts(document)
        return
    if kind == "LLMInferenceService":
        yield from _inference_service(document)
    for pod, around in mappings(document):
        held = pod.fields()
        containers = [*(held["containers"].items() if "containers" in held else ())]
        if "mainContainer" in held:
            containers.append(held["mainContainer"])
        for container in containers:
            yield from _container_launches(container, pod=pod, around=around)


def _around(around: Sequence[Value], *path: str) -> str:
    """The nearest scalar at a path below the pod or what holds it, empty where there is none."""
    return next((text for each in around if (text := each.text_at(*path))), "")


def _container_launches(
    container: Value, *, pod: Value, around: Sequence[Value]
) -> Iterator[FoundLaunch]:
    image = container.text_at("image")
    nodes = max(_number(_around(around, *path)) for path in _NODE_COUNTS)
    environment = {**_injected(nodes), **_environment(container.get("env"))}
    given = _container(container, pod=pod, around=around, image=image)
    commands = container_commands(
        image,
        entry=container.get("command"),
        command=container.get("args"),
        environment=environment,
    )
    for each in commands:
        yield FoundLaunch(
            words=tuple(_expanded(word, environment) for word in each.words),
            environment=each.environment,
            kind=FileKind.KUBERNETES,
            container=given,
            nodes=nodes or _kserve_nodes(around),
            model=_around(around, "model", "uri"),
            gpu_hint=_gpu_hint(pod),
            images=(image,) if image else (),
            open_environment=each.open_environment or container.get("envFrom") is not None,
        )


def _injected(nodes: int) -> dict[str, Assigned]:
    """What LeaderWorkerSet sets in every container of a group of this many nodes."""
    return {_GROUP_SIZE: Assigned(value=str(nodes))} if nodes else {}


def _kserve_nodes(around: Sequence[Value]) -> int:
    """The nodes of one replica of KServe's service, 0 where it has no workers beside its leader."""
    holder = next((each for each in around if each.get("parallelism") is not None), None)
    if holder is None or holder.get("worker") is None:
        return 0
    size = {
        key: _number(holder.text_at("parallelism", key))
        for key in ("data", "dataLocal", "pipeline")
    }
    groups = -(-size["data"] // size["dataLocal"]) if size["dataLocal"] else 1
    return max(groups, size["pipeline"])


def _environment(value: Value | None) -> dict[str, Assigned]:
    found: dict[str, Assigned] = {}
    for item in value.items() if value is not None else ():
        given = item.get("value")
        text = given.text if given is not None else ""
        known = given is not None and "$(" not in text and "{{" not in text
        place = given or item
        found[item.text_at("name")] = Assigned(
            value=text, line=place.line, start=place.start, end=place.end, resolved=known
        )
    return found


def _expanded(word: SourceWord, environment: Mapping[str, Assigned]) -> SourceWord:
    """A word in which ``$(NAME)`` is the whole of it, with the variable's value."""
    name = word.text[2:-1]
    if not (word.text.startswith("$(") and word.text.endswith(")") and name in environment):
        return word
    each = environment[name]
    if not each.resolved and not each.value:
        return replace(word, resolved=False)
    return SourceWord(text=each.value, line=each.line, resolved=each.resolved)


def _container(container: Value, *, pod: Value, around: Sequence[Value], image: str) -> Container:
    limits = next(
        (found for each in (container, *around) if (found := each.get("resources", "limits"))), None
    )
    held = limits.fields() if limits is not None else {}
    counts = [_number(held[name].text) for name in _GPUS if name in held]
    claims = container.get("resources", "claims")
    memory = held["memory"].text if "memory" in held else ""
    security = container.get("securityContext")
    added = security.get("capabilities", "add") if security is not None else None
    return Container(
        image=image,
        shm_bytes=_shm_bytes(container, pod=pod, around=around),
        host_ipc=pod.text_at("hostIPC") == "true",
        host_network=pod.text_at("hostNetwork") == "true",
        privileged=container.text_at("securityContext", "privileged") == "true",
        memlock_unlimited=True,
        has_gpus=bool(counts) or claims is not None or limits is None,
        gpus=counts[0] if counts and counts[0] else None,
        rdma=any("rdma" in name or "infiniband" in name for name in held),
        capabilities=tuple(item.text for item in added.items()) if added is not None else (),
        startup_seconds=_startup_seconds(container),
        host_memory_bytes=size_bytes(memory) if memory else None,
    )


def _shm_bytes(container: Value, *, pod: Value, around: Sequence[Value]) -> int | None:
    """Size of what is mounted at /dev/shm, None where nothing is."""
    shared = _around(around, "sharedMemorySize") or _around(around, "sharedMemory", "size")
    if shared:
        return size_bytes(shared)
    mounts = container.get("volumeMounts")
    names = [
        item.text_at("name")
        for item in (mounts.items() if mounts is not None else ())
        if item.text_at("mountPath").rstrip("/") == "/dev/shm"
    ]
    if not names:
        return None
    volumes = pod.get("volumes")
    for volume in volumes.items() if volumes is not None else ():
        if volume.text_at("name") in names:
            limit = volume.text_at("emptyDir", "sizeLimit")
            return (size_bytes(limit) if limit else None) or _LARGE
    return _LARGE


def _startup_seconds(container: Value) -> float | None:
    """How long the server may take before a probe ends it, None where none does."""
    for name in ("startupProbe", "livenessProbe"):
        probe = container.get(name)
        if probe is None:
            continue
        delay = _number(probe.text_at("initialDelaySeconds"))
        failures = _number(probe.text_at("failureThreshold")) or 3
        period = _number(probe.text_at("periodSeconds")) or 10
        return float(delay + failures * period)
    return None


def _gpu_hint(pod: Value) -> str:
    selector = pod.get("nodeSelector")
    texts = [each.text for each in selector.fields().values()] if selector is not None else []
    return " ".join(texts)[:200]


def _scripts(document: Value) -> Iterator[FoundLaunch]:
    """Scripts that a ConfigMap holds."""
    data = document.get("data")
    for value in (data.fields() if data is not None else {}).values():
        if may_start(value.text):
            yield from _of_script(value)


def _of_script(value: Value) -> Iterator[FoundLaunch]:
    require_closed(value.source, text=value.text, start=value.start)
    for each in shell_commands(value.text):
        words = relocated(
            each.words, value.text, value.source.text, start=value.start, end=value.end
        )
        yield FoundLaunch(
            words=words,
            environment=each.environment,
            kind=FileKind.KUBERNETES,
            nodes=0,
            open_environment=each.open_environment,
        )


def _inference_service(document: Value) -> Iterator[FoundLaunch]:
    """KServe's own form: model and layout as fields, further flags in one variable."""
    spec, model = document.get("spec"), document.get("spec", "model")
    if spec is None or model is None or spec.get("template") is None:
        return
    line = model.line
    name = model.text_at("uri").partition("://")[2] or model.text_at("name")
    words = [SourceWord(text=text, line=line) for text in ("vllm", "serve", name)]
    for key, flag in _LAYOUT.items():
        size = spec.get("parallelism", key)
        if size is not None:
            words += [SourceWord(text=flag, line=size.line), size.word()]
    experts = spec.get("parallelism", "expert")
    if experts is not None and experts.text == "true":
        words.append(SourceWord(text="--enable-expert-parallel", line=experts.line))
    for container in (spec.get("template", "containers") or model).items():
        if container.get("command") is not None:
            return
        environment = _environment(container.get("env"))
        extra = environment.pop("VLLM_ADDITIONAL_ARGS", None)
        args = container.get("args")
        given = [item.word() for item in args.items()] if args is not None else []
        if extra is not None:
            given += [word for each in shell_commands(extra.value) for word in each.words]
        yield FoundLaunch(
            words=(*words, *given),
            environment=environment,
            kind=FileKind.KUBERNETES,
            nodes=_kserve_nodes((spec,)),
            # KServe's own base configuration mounts the shared memory.
            container=replace(
                _container(
                    container,
                    pod=spec.get("template") or spec,
                    around=(),
                    image=container.text_at("image"),
                ),
                shm_bytes=_LARGE,
            ),
            images=(container.text_at("image"),),
            open_environment=container.get("envFrom") is not None,
        )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0  # noqa: PLR2004
