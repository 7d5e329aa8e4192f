"""A launch as shell scripts: one for all nodes of a server, which differ by a variable."""

import shlex
from typing import Final

from k31ctl.serve.files import LaunchFile, comment, heading, reason_of
from k31ctl.serve.rollout import NodeValue, Rollout, Server, Where, Word

_NAMES: Final = {
    Where.RANK: "RANK",
    Where.HEAD: "HEAD_ADDRESS",
    Where.NODE_ADDRESS: "NODE_ADDRESS",
    Where.INTERFACE: "NETWORK_INTERFACE",
    Where.PREFILL: "PREFILL_ADDRESS",
    Where.DECODE: "DECODE_ADDRESS",
}
_NEEDED: Final = {
    Where.HEAD: "the address of the first node",
    Where.NODE_ADDRESS: "the address of this node",
    Where.INTERFACE: "the network interface between the nodes, such as eth0",
}
OPEN_FILES: Final = 65_536


def shell_files(rollout: Rollout) -> tuple[LaunchFile, ...]:
    """Return one script for each server, and one for the router where there is one."""
    found = [
        LaunchFile(path=script_name(rollout, server), text=script(rollout, server), executable=True)
        for server in rollout.servers
    ]
    if rollout.router is not None:
        found.append(LaunchFile(path="router.sh", text=_router(rollout), executable=True))
    return tuple(found)


def script_name(rollout: Rollout, server: Server) -> str:
    """The file that starts a server's node."""
    return "launch.sh" if len(rollout.servers) == 1 else f"{server.name}.sh"


def script(rollout: Rollout, server: Server) -> str:
    """Return the script that every node of a server runs."""
    lines = ["#!/usr/bin/env bash", *heading(rollout), "set -euo pipefail", ""]
    lines += [*_places(rollout, server), *_limits(), *_exports(server), "args=("]
    for choice in server.choices:
        if not choice.followers_only:
            lines.append(f"  # {reason_of(choice)}")
            lines.append("  " + " ".join(quoted(word) for word in choice.words))
    lines.append(")")
    followers = [choice for choice in server.choices if choice.followers_only]
    if followers:
        lines.append("if ((RANK > 0)); then")
        for choice in followers:
            lines.append(f"  # {reason_of(choice)}")
            lines.append(f"  args+=({' '.join(quoted(word) for word in choice.words)})")
        lines.append("fi")
    called = shlex.join((*server.program, *server.model_words(rollout.model)))
    return "\n".join([*lines, "", f'exec {called} "${{args[@]}}"', ""])


def quoted(word: Word) -> str:
    """A word that the shell takes as one and the same, whatever is in it."""
    if not isinstance(word, NodeValue):
        return shlex.quote(word)
    name = _NAMES[word.where]
    inner = f"$(({name} * {word.times}))" if word.times > 1 else f"${{{name}}}"
    return f'"{word.before}{inner}{word.after}"'


def _places(rollout: Rollout, server: Server) -> list[str]:
    """Lines that settle what differs by node, or stop and say what is missing."""
    used = {value.where for value in server.node_values}
    lines = []
    if server.num_nodes > 1:
        last = server.num_nodes - 1
        lines.append(f"# which node this is, from 0 to {last}; Slurm says it itself")
        lines.append('RANK="${RANK:-${SLURM_NODEID:-${1:?give the rank of this node}}}"')
    known = {Where.HEAD: rollout.host(server, 0), Where.INTERFACE: rollout.interface}
    for where, meaning in _NEEDED.items():
        if where not in used:
            continue
        name = _NAMES[where]
        lines.append(f"# {meaning}")
        given = known.get(where)
        if given is not None:
            lines.append(f'if [[ -z "${{{name}:-}}" ]]; then {name}={shlex.quote(given)}; fi')
        elif where is Where.NODE_ADDRESS:
            lines.append(f'{name}="${{{name}:-$(hostname -i | cut -d " " -f 1)}}"')
        else:
            lines.append(f'{name}="${{{name}:?set it to {meaning}}}"')
    return [*lines, ""] if lines else []


def _limits() -> list[str]:
    return [
        "# RDMA pins memory, and thousands of files and sockets are open at once",
        f'ulimit -l unlimited -n {OPEN_FILES} || echo "limits stay as they are" >&2',
        "",
    ]


def _exports(server: Server) -> list[str]:
    lines = []
    for v in server.variables:
        lines.append(f"# {comment(f'{v.reason} ({v.standing}: {v.source})')}")
        lines.append(f"export {v.name}={quoted(v.value)}")
    return [*lines, ""] if lines else []


def _router(rollout: Rollout) -> str:
    assert rollout.router is not None
    router = rollout.router
    lines = ["#!/usr/bin/env bash", *heading(rollout), "set -euo pipefail", ""]
    for server in rollout.servers:
        name, host = _NAMES[Where(server.name)], rollout.host(server, 0)
        lines.append(f"# the address of the first node that does {server.name}")
        if host is not None:
            lines.append(f'if [[ -z "${{{name}:-}}" ]]; then {name}={shlex.quote(host)}; fi')
        else:
            lines.append(f'{name}="${{{name}:?set it to that address}}"')
    lines.append("")
    words = [quoted(word) for word in (*router.program, *router.words)]
    return "\n".join([*lines, "exec " + " ".join(words), ""])
