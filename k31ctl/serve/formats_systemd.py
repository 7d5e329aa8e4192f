"""A launch as systemd units: one for each node."""

from typing import Final

from k31ctl.errors import UsageError
from k31ctl.serve.containers import probe
from k31ctl.serve.files import LaunchFile, comment, heading, reasons
from k31ctl.serve.formats_shell import OPEN_FILES
from k31ctl.serve.rollout import NodeValue, Rollout, Router, Server, Where, Word

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+@")
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_FIRST_PRINTABLE: Final = 0x20
_DELETE: Final = 0x7F
_STOP_S: Final = 120


def systemd_files(rollout: Rollout) -> tuple[LaunchFile, ...]:
    """Return a unit for each node; raises UsageError where an address has to be known and is not.

    A unit knows only what is written in it, so several nodes need --hosts and --interface.
    """
    if rollout.router is not None and not rollout.hosts:
        raise _unknown("hosts")
    found = []
    for server in rollout.servers:
        for rank in range(server.num_nodes):
            text = _unit(rollout, server, rank)
            found.append(LaunchFile(path=unit_name(rollout, server, rank), text=text))
    if rollout.router is not None:
        path = f"{rollout.name}-router.service"
        found.append(LaunchFile(path=path, text=_router(rollout, rollout.router)))
    return tuple(found)


def _router(rollout: Rollout, router: Router) -> str:
    heads = {server.name: rollout.host(server, 0) for server in rollout.servers}
    words = [w.at(heads[w.where] or "") if isinstance(w, NodeValue) else w for w in router.words]
    command = " ".join(quoted(word) for word in (*router.program, *words))
    lines = [
        *heading(rollout),
        "[Unit]",
        f"Description=Router of {comment(rollout.title).replace('%', '%%')}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "Type=exec",
        f"ExecStart=/usr/bin/env {command}",
        "Restart=on-failure",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def unit_name(rollout: Rollout, server: Server, rank: int) -> str:
    """The name of a node's unit."""
    node = "" if server.num_nodes == 1 else f"-node{rank}"
    return f"{rollout.name}-{server.name}{node}.service"


def _unit(rollout: Rollout, server: Server, rank: int) -> str:
    words = server.words(rollout.model, follower=rank > 0)
    command = " ".join(quoted(_at(word, rollout, server, rank)) for word in words)
    lines = [
        *heading(rollout),
        *reasons(server),
        "[Unit]",
        f"Description={comment(rollout.title).replace('%', '%%')}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "Type=exec",
        "# the engine is looked for in PATH; name its folder here where it is elsewhere",
        'Environment="PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"',
        *(_variable(v.name, _at(v.value, rollout, server, rank)) for v in server.variables),
        f"ExecStart=/usr/bin/env {command}",
        "# RDMA pins memory, and thousands of files and sockets are open at once",
        "LimitMEMLOCK=infinity",
        f"LimitNOFILE={OPEN_FILES}",
        "# a lost rank ends the others too; each starts anew",
        "Restart=on-failure",
        "RestartSec=10",
        f"TimeoutStartSec={probe(server).start_s}",
        f"TimeoutStopSec={_STOP_S}",
        "KillMode=mixed",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _at(word: Word, rollout: Rollout, server: Server, rank: int) -> str:
    if not isinstance(word, NodeValue):
        return word
    known = {
        Where.RANK: str(rank),
        Where.HEAD: rollout.host(server, 0),
        Where.NODE_ADDRESS: rollout.host(server, rank),
        Where.INTERFACE: rollout.interface,
    }.get(word.where)
    if known is None:
        raise _unknown(word.where)
    return word.at(known)


def _unknown(what: str) -> UsageError:
    return UsageError(
        f"a unit has to say the {what} of its node",
        where="--as systemd",
        remedy="add --hosts A,B,... and --interface NAME",
    )


def quoted(text: str) -> str:
    """A word of a command line as systemd reads it: no escape, specifier or variable in it."""
    if text and set(text) <= _PLAIN:
        return text
    return f'"{_escaped(text).replace("%", "%%").replace("$", "$$")}"'


def _variable(name: str, value: str) -> str:
    return f'Environment="{name}={_escaped(value).replace("%", "%%")}"'


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(mark) or _visible(mark) for mark in text)


def _visible(mark: str) -> str:
    """A control code by its number: a line of a unit cannot hold one."""
    code = ord(mark)
    return mark if code >= _FIRST_PRINTABLE and code != _DELETE else f"\\x{code:02x}"
