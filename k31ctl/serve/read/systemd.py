"""systemd units read: the commands that they start, and the limits that they set."""

import re
import shlex
from collections.abc import Iterator
from typing import Final

from k31ctl.core.rules import Container, FileKind
from k31ctl.serve.read.carried import carried_commands
from k31ctl.serve.read.docker import docker_run
from k31ctl.serve.read.found import Assigned, FoundLaunch, SourceWord, relocated
from k31ctl.serve.read.shell import shell_commands
from k31ctl.serve.read.shell_text import Command
from k31ctl.serve.read.source import Source
from k31ctl.serve.read.unclosed import require_closed
from k31ctl.values import frozen

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_STARTS: Final = ("ExecStart", "ExecStartPre", "ExecStartPost")
_SPAN: Final = re.compile(r"([\d.]+)\s*(ms|s|sec|min|m|h|hr|d)?", re.IGNORECASE)
_SECONDS: Final = {"ms": 0.001, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "hr": 3600}


@frozen
class Entry:
    """One assignment of a unit, with the place of its value."""

    key: str
    value: str
    start: int
    end: int
    line: int


def systemd_launches(source: Source) -> Iterator[FoundLaunch]:
    """Return what a unit starts."""
    entries = _entries(source.text)
    environment = _environment(entries)
    settings = {entry.key: entry.value for entry in entries}
    container = Container(
        has_gpus=True,
        host_ipc=True,
        host_network=True,
        memlock_unlimited=settings.get("LimitMEMLOCK", "").strip() == "infinity",
        startup_seconds=_startup_seconds(settings),
    )
    for entry in entries:
        if entry.key not in _STARTS:
            continue
        for each in _commands(entry, environment, source):
            run = docker_run(each.words)
            yield FoundLaunch(
                words=each.words if run is None else run.words,
                environment=each.environment if run is None else run.environment,
                kind=FileKind.SYSTEMD,
                container=container if run is None else run.container,
                images=() if run is None else (run.container.image,),
                open_environment=each.open_environment or "EnvironmentFile" in settings,
            )


def _commands(
    entry: Entry, environment: dict[str, Assigned], source: Source
) -> tuple[Command, ...]:
    skipped = len(entry.value) - len(entry.value.lstrip("-@:+!"))
    text = entry.value[skipped:]
    if "'" in text or '"' in text:
        require_closed(source, text=text, start=entry.start)
    variables: dict[str, tuple[SourceWord, ...]] = {
        name: (SourceWord(text=each.value, line=each.line, resolved=each.resolved),)
        for name, each in environment.items()
    }
    read = shell_commands(text, environment=environment, variables=variables)
    if not read:
        return ()
    words = relocated(read[0].words, text, source.text, start=entry.start, end=entry.end)
    return carried_commands(words, environment=environment, text=source.text)


def _entries(text: str) -> list[Entry]:
    """The assignments of a unit; a value goes on behind a backslash at the end of a line."""
    found: list[Entry] = []
    at, line = 0, 0
    lines = _LINE.findall(text)
    while line < len(lines):
        first, start = line, at
        whole = lines[line]
        at, line = at + len(whole), line + 1
        while whole.rstrip("\r\n").endswith("\\") and line < len(lines):
            whole += lines[line]
            at, line = at + len(lines[line]), line + 1
        key, equals, value = whole.partition("=")
        if equals and not key.lstrip().startswith(("#", ";", "[")):
            begin = start + len(key) + 1
            found.append(Entry(key=key.strip(), value=value, start=begin, end=at, line=first + 1))
    return found


def _environment(entries: list[Entry]) -> dict[str, Assigned]:
    found = {}
    for entry in entries:
        if entry.key != "Environment":
            continue
        try:
            parts = shlex.split(entry.value)
        except ValueError:
            continue
        for part in parts:
            name, _, value = part.partition("=")
            found[name] = Assigned(value=value, line=entry.line, start=entry.start, end=entry.end)
    return found


def _startup_seconds(settings: dict[str, str]) -> float | None:
    """How long the unit may take to start, where it says when it has started."""
    if settings.get("Type", "").strip() not in ("notify", "notify-reload", "forking", "oneshot"):
        return None
    given = settings.get("TimeoutStartSec", "90").strip()
    if given in ("infinity", "0"):
        return None
    parts = _SPAN.findall(given[:40])
    return sum(float(number) * _SECONDS.get(unit.lower() or "s", 1) for number, unit in parts)
