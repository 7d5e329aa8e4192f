"""Shell and Slurm scripts read: their commands, containers that they start, Slurm's own lines."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from k31ctl.core.rules import Container, FileKind
from k31ctl.serve.read.docker import docker_run, size_bytes
from k31ctl.serve.read.found import Assigned, FoundLaunch, SourceWord
from k31ctl.serve.read.neighbours import Look, nothing_beside
from k31ctl.serve.read.shell import shell_commands
from k31ctl.serve.read.shell_text import Command, installs
from k31ctl.serve.read.source import Source
from k31ctl.serve.read.unclosed import require_closed
from k31ctl.values import frozen

_HEADER: Final = re.compile(r"^#SBATCH[ \t]+(.*)$", re.MULTILINE)
_GRES: Final = re.compile(r"gpu(?::([A-Za-z][\w-]*))?:(\d{1,4})")


@frozen
class Allocation:
    """What a batch script asks Slurm for; 0 and empty where it does not say."""

    nodes: int
    gpus_per_node: int
    memory_bytes: int
    gpu: str
    is_batch: bool


def script_launches(
    source: Source,
    *,
    look: Look = nothing_beside,
    environment: dict[str, Assigned] | None = None,
    arguments: tuple[SourceWord, ...] | None = None,
) -> Iterator[FoundLaunch]:
    """Return what a shell script runs; InputError where it is not closed, as bash refuses it."""
    require_closed(source)
    asked = allocation(source.text)
    given = {**_of_slurm(asked), **(environment or {})}
    commands = shell_commands(source.text, environment=given, arguments=arguments, look=look)
    installed = installs(commands)
    for command in commands:
        yield from launches_of(
            command,
            kind=FileKind.SBATCH if asked.is_batch else FileKind.SHELL,
            asked=asked,
            installed=installed,
        )


def launches_of(
    command: Command, *, kind: FileKind, asked: Allocation, installed: tuple[str, ...]
) -> Iterator[FoundLaunch]:
    """Return what one command runs: itself, or what runs in the container that it starts."""
    run = docker_run(command.words)
    image = _slurm_image(command.words)
    words, environment = command.words, command.environment
    container: Container | None = None
    if run is not None:
        words, container = run.words, run.container
        environment = {**run.environment, **_passed_through(run.environment, environment)}
        kind = FileKind.DOCKER if kind in (FileKind.SHELL, FileKind.COMMAND) else kind
        image = container.image
    yield FoundLaunch(
        words=words,
        environment=environment,
        kind=kind,
        container=container,
        nodes=_srun_nodes(words) or asked.nodes,
        gpus_per_node=asked.gpus_per_node,
        memory_bytes=asked.memory_bytes,
        gpu_hint=asked.gpu,
        images=(image,) if image else (),
        installs=installed,
        open_environment=command.open_environment or (run is not None and run.open_environment),
    )


def _passed_through(
    given: Mapping[str, Assigned], around: Mapping[str, Assigned]
) -> dict[str, Assigned]:
    """The variables of a container that are named without a value, where the script has one."""
    return {
        name: around[name]
        for name, each in given.items()
        if not each.resolved and not each.value and name in around
    }


def _of_slurm(asked: Allocation) -> dict[str, Assigned]:
    """The variables in which Slurm tells a job what the script asks for."""
    told = {
        "SLURM_NNODES": asked.nodes,
        "SLURM_JOB_NUM_NODES": asked.nodes,
        "SLURM_GPUS_ON_NODE": asked.gpus_per_node,
    }
    return {name: Assigned(value=str(number)) for name, number in told.items() if number}


def allocation(text: str) -> Allocation:
    """What the ``#SBATCH`` lines ask for."""
    options: dict[str, str] = {}
    lines = _HEADER.findall(text)
    for line in lines:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        for at, word in enumerate(words):
            name, equals, value = word.partition("=")
            if not equals and at + 1 < len(words):
                value = words[at + 1]
            if word.startswith("-"):
                options[name] = value
    nodes = options.get("--nodes") or options.get("-N") or ""
    gpus = options.get("--gpus-per-node") or options.get("--gres") or ""
    if not gpus and nodes in ("", "1"):
        gpus = options.get("--gpus") or options.get("-G") or ""
    typed = _GRES.search(gpus if gpus.startswith("gpu") else f"gpu:{gpus}")
    return Allocation(
        nodes=_number(nodes.partition("-")[0]),
        gpus_per_node=int(typed[2]) if typed else 0,
        memory_bytes=_memory_bytes(options.get("--mem", "")),
        gpu=(typed[1] or "") if typed else "",
        is_batch=bool(lines),
    )


def _memory_bytes(text: str) -> int:
    """Bytes of Slurm's ``--mem``, which are MiB without a unit; 0 is all of the node."""
    return size_bytes(f"{text}m" if text.isascii() and text.isdigit() else text) or 0


def _srun_nodes(words: Sequence[SourceWord]) -> int:
    """The nodes that ``srun`` itself is told to use, 0 where it is not."""
    texts = [word.text for word in words[:40]]
    if "srun" not in texts:
        return 0
    for at, text in enumerate(texts):
        name, equals, value = text.partition("=")
        if name in ("--nodes", "-N"):
            return _number(value if equals else "".join(texts[at + 1 : at + 2]))
    return 0


def _slurm_image(words: Sequence[SourceWord]) -> str:
    for word in words:
        if word.text.startswith("--container-image="):
            return word.text.partition("=")[2].replace("#", "/")
    return ""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0  # noqa: PLR2004
