"""A launch as Docker Compose: one file for each node."""

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
from k31ctl.serve.formats_shell import OPEN_FILES
from k31ctl.serve.rollout import NodeValue, Rollout, Router, Server, Where, Word

_MANY_GROUPS: Final = 8
_STACK_BYTES: Final = 67_108_864
_HUB: Final = "hub"
_CACHES: Final = "kernel-caches"
_NAMES: Final = {
    Where.HEAD: ("HEAD_ADDRESS", "the address of the first node"),
    Where.NODE_ADDRESS: ("NODE_ADDRESS", "the address of this node"),
    Where.INTERFACE: ("NETWORK_INTERFACE", "the interface between the nodes"),
    Where.PREFILL: ("PREFILL_ADDRESS", "the address of the first node that does prefill"),
    Where.DECODE: ("DECODE_ADDRESS", "the address of the first node that does decode"),
}
_CHECK: Final = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)"


def compose_files(rollout: Rollout) -> tuple[LaunchFile, ...]:
    """Return ``compose.yaml``, or one file for each node where there are several."""
    found = []
    for server in rollout.servers:
        for rank in range(server.num_nodes):
            name = compose_name(rollout, server, rank)
            found.append(LaunchFile(path=name, text=_text(rollout, server, rank)))
    if rollout.router is not None:
        found.append(LaunchFile(path="router.compose.yaml", text=_router(rollout, rollout.router)))
    return tuple(found)


def _router(rollout: Rollout, router: Router) -> str:
    def at(word: Word) -> str:
        if not isinstance(word, NodeValue):
            return _literal(word)
        server = next(s for s in rollout.servers if s.name == word.where)
        host = rollout.host(server, 0)
        name, meaning = _NAMES[word.where]
        known = f"${{{name}:?set it to {meaning}}}" if host is None else _literal(host)
        return f"{word.before}{known}{word.after}"

    service = {
        "image": _literal(router.image or image_of(rollout)),
        "entrypoint": list(router.program),
        "command": [at(word) for word in router.words],
        "network_mode": "host",
        "restart": "on-failure",
    }
    document = {"name": f"{rollout.name}-router", "services": {"router": service}}
    return "\n".join([*heading(rollout), yaml_text(document)])


def compose_name(rollout: Rollout, server: Server, rank: int) -> str:
    """The file of one node."""
    pool = "" if len(rollout.servers) == 1 else f"{server.name}."
    node = "" if server.num_nodes == 1 else f"node{rank}."
    return f"{pool}{node}compose.yaml" if pool or node else "compose.yaml"


def _text(rollout: Rollout, server: Server, rank: int) -> str:
    volumes: dict[str, Any] = {_CACHES: {}} | ({_HUB: {}} if rollout.weights.folder is None else {})
    document = {
        "name": f"{rollout.name}-{server.name}",
        "services": {server.name: _service(rollout, server, rank)},
        "volumes": volumes,
    }
    return "\n".join([*heading(rollout), *reasons(server), yaml_text(document)])


def _service(rollout: Rollout, server: Server, rank: int) -> dict[str, Any]:
    model = model_in_container(rollout)
    words = server.words(model, follower=rank > 0)
    first = len(server.program)
    variables = {v.name: _at(v.value, rollout, server, rank) for v in server.variables}
    service: dict[str, Any] = {
        "image": _literal(image_of(rollout)),
        "entrypoint": [_at(word, rollout, server, rank) for word in words[:first]],
        "command": [_at(word, rollout, server, rank) for word in words[first:]],
        "environment": {**container_variables(rollout, server), **variables},
        "network_mode": "host",
        **_shared_memory(server),
        "cap_add": ["IPC_LOCK"],
        "ulimits": {"memlock": -1, "stack": _STACK_BYTES, "nofile": OPEN_FILES},
        "volumes": _volumes(rollout),
        "restart": "on-failure",
        "stop_grace_period": "2m",
    }
    devices = _devices(rollout, server)
    if rank == 0:
        service["healthcheck"] = _healthcheck(server)
    else:
        service["healthcheck"] = {"disable": True}
    return {**service, **devices}


def _shared_memory(server: Server) -> dict[str, str]:
    """The host's IPC, or a /dev/shm of its own, which goes with a container of many groups.

    Segments that crashed groups leave in the host's fill it: llm-d/llm-d#352.
    """
    if server.plan.layout.dp // server.num_nodes < _MANY_GROUPS:
        return {"ipc": "host"}
    return {"shm_size": f"{server.shared_memory_bytes >> 30}gb"}


def _at(word: Word, rollout: Rollout, server: Server, rank: int) -> str:
    """A word on this node; what the file cannot know is asked of Compose's environment."""
    if not isinstance(word, NodeValue):
        return _literal(word)
    if word.where is Where.RANK:
        return word.at(str(rank))
    known = {
        Where.HEAD: rollout.host(server, 0),
        Where.NODE_ADDRESS: rollout.host(server, rank),
        Where.INTERFACE: rollout.interface,
    }[word.where]
    if known is not None:
        return word.at(_literal(known))
    name, meaning = _NAMES[word.where]
    return f"{word.before}${{{name}:?set it to {meaning}}}{word.after}"


def _literal(text: str) -> str:
    """Text in which Compose sees no variable."""
    return text.replace("$", "$$")


def _volumes(rollout: Rollout) -> list[dict[str, Any]]:
    caches = {"type": "volume", "source": _CACHES, "target": CACHE_FOLDER}
    folder = rollout.weights.folder
    if folder is None:
        return [{"type": "volume", "source": _HUB, "target": HUB_FOLDER}, caches]
    weights = {
        "type": "bind",
        "source": _literal(folder),
        "target": MODEL_FOLDER,
        "read_only": True,
        "bind": {"create_host_path": False},
    }
    return [weights, caches]


def _devices(rollout: Rollout, server: Server) -> dict[str, Any]:
    rdma = ["/dev/infiniband:/dev/infiniband"] if rollout.num_nodes > 1 else []
    if rollout.amd:
        return {
            "devices": ["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri", *rdma],
            "group_add": ["video", "render"],
            "security_opt": ["seccomp=unconfined"],
        }
    wanted = {"driver": "nvidia", "count": server.gpus_per_node, "capabilities": ["gpu"]}
    found: dict[str, Any] = {"deploy": {"resources": {"reservations": {"devices": [wanted]}}}}
    return {**found, "devices": rdma} if rdma else found


def _healthcheck(server: Server) -> dict[str, Any]:
    found = probe(server)
    url = f"http://127.0.0.1:{found.port}{found.path}"
    return {
        "test": ["CMD", "python3", "-c", _CHECK, url],
        "interval": f"{found.period_s}s",
        "timeout": "6s",
        "retries": 3,
        "start_period": f"{found.start_s}s",
    }
