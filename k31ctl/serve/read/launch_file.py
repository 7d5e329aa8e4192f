"""A launch file of any kind read: every command in it that starts an engine."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from k31ctl.core.launch_form import find_call
from k31ctl.core.rules import FileKind
from k31ctl.errors import InputError
from k31ctl.serve.read.compose import compose_launches
from k31ctl.serve.read.found import FoundLaunch, SourceWord
from k31ctl.serve.read.kubernetes import kubernetes_launches
from k31ctl.serve.read.scripts import Allocation, launches_of, script_launches
from k31ctl.serve.read.shell_text import Command, TooDeepError
from k31ctl.serve.read.source import Source
from k31ctl.serve.read.systemd import systemd_launches
from k31ctl.serve.read.yaml_graph import documents

_YAML: Final = (".yaml", ".yml")
_MOST_LAUNCHES: Final = 64
_NOTHING_ASKED: Final = Allocation(nodes=0, gpus_per_node=0, gpu="", is_batch=False)


def launches_in(source: Source) -> tuple[FoundLaunch, ...]:
    """Return every command of a file that starts an engine that is known.

    Raises InputError where the file holds none, or is nested or long beyond all use.
    """
    try:
        calls = (each for each in _all(source) if find_call(each.texts) is not None)
        found = tuple(islice(calls, _MOST_LAUNCHES + 1))
    except (TooDeepError, RecursionError):
        raise InputError(
            "nested deeper, or longer, than any launch file",
            where=source.name,
            remedy="name the script or manifest itself",
        ) from None
    if len(found) > _MOST_LAUNCHES:
        raise InputError(
            f"more than {_MOST_LAUNCHES} commands that start an engine",
            where=source.name,
            remedy="check a part of the file at a time",
        )
    if not found:
        raise InputError(
            "no command that starts vLLM, SGLang or TokenSpeed",
            where=source.name,
            remedy="name a script, Compose file, manifest or unit with such a command, or give the "
            "command itself: k31ctl lint -- vllm serve ...",
        )
    return found


def launch_of_words(words: Sequence[str]) -> tuple[FoundLaunch, ...]:
    """Return the launch that a command line is; InputError where it starts no engine."""
    given = tuple(SourceWord(text=word, line=1, certain=True) for word in words)
    command = Command(words=given, environment={})
    found = launches_of(command, kind=FileKind.COMMAND, asked=_NOTHING_ASKED, installed=())
    launches = tuple(each for each in found if find_call(each.texts) is not None)
    if not launches:
        raise InputError(
            "the command starts no engine that is known",
            where=" ".join(words)[:200],
            remedy="begin with vllm serve, python3 -m sglang.launch_server, ts serve or docker run",
        )
    return launches


def _all(source: Source) -> Iterator[FoundLaunch]:
    name = source.name.casefold()
    head = source.text[:65536]
    if name.endswith(".service") or "\n[Service]" in f"\n{head}":
        yield from systemd_launches(source)
    elif name.endswith(_YAML) or (not head.startswith("#!") and _is_manifest(head)):
        for document in documents(source):
            if document.get("services") is not None and not document.text_at("apiVersion"):
                yield from compose_launches(document)
            else:
                yield from kubernetes_launches(document)
    else:
        yield from script_launches(source.text)


def _is_manifest(head: str) -> bool:
    lines = [line for line in head.splitlines() if line.strip() and not line.startswith("#")]
    return any(line.startswith(("apiVersion:", "services:")) for line in lines[:400])
