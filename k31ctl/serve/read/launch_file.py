"""A launch file of any kind read: every command in it that starts an engine."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from k31ctl.core.launch_form import find_call
from k31ctl.core.rules import FileKind
from k31ctl.errors import InputError
from k31ctl.serve.read.followed import followed
from k31ctl.serve.read.found import FoundLaunch, SourceWord
from k31ctl.serve.read.neighbours import Neighbours, nothing_beside, script_at
from k31ctl.serve.read.scripts import Allocation, launches_of, script_launches
from k31ctl.serve.read.shell_text import Command, TooDeepError, is_open
from k31ctl.serve.read.source import Source

_YAML: Final = (".yaml", ".yml")
_MOST_LAUNCHES: Final = 64
_NOTHING_ASKED: Final = Allocation(nodes=0, gpus_per_node=0, memory_bytes=0, gpu="", is_batch=False)


class NothingStartedError(InputError):
    """A file starts no engine that is known."""


def launches_in(source: Source, neighbours: Neighbours | None = None) -> tuple[FoundLaunch, ...]:
    """Return every command of a file that starts an engine that is known.

    What starts it may be a script among the ``neighbours`` that the file runs; without them only
    the file itself is read. Raises InputError where there is none, or where the file is nested or
    long beyond all use, or leaves a quote open.
    """
    missing: list[str] = []
    try:
        calls = (
            each for each in _all(source, neighbours, missing) if find_call(each.texts) is not None
        )
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
        raise _nothing_started(source, missing)
    return found


def _nothing_started(source: Source, missing: Sequence[str]) -> NothingStartedError:
    what = "no command that starts vLLM, SGLang or TokenSpeed"
    if missing:
        return NothingStartedError(
            f"{what}; it runs {missing[0][:80]}, which is not beside it",
            where=source.name,
            remedy="give that script too: k31ctl lint FILE SCRIPT",
        )
    return NothingStartedError(
        what,
        where=source.name,
        remedy="name a script, Compose file, manifest or unit with such a command, or give the "
        "command itself: k31ctl lint -- vllm serve ...",
    )


def launch_of_words(words: Sequence[str]) -> tuple[FoundLaunch, ...]:
    """Return the launch that a command line is; InputError where it starts no engine."""
    given = tuple(
        SourceWord(text=word, line=1, certain=True, resolved=not is_open(word)) for word in words
    )
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


def _all(
    source: Source, neighbours: Neighbours | None, missing: list[str]
) -> Iterator[FoundLaunch]:
    """Every command of a file, with those of the scripts that it runs in their place."""
    for found in _own(source, neighbours):
        inside = [found] if neighbours is None else followed(found, source, neighbours)
        for each in inside:
            at = None if find_call(each.texts) is not None else script_at(each.words)
            if at is not None:
                missing.append(each.words[at].text)
            yield each


def _own(source: Source, neighbours: Neighbours | None) -> Iterator[FoundLaunch]:
    name = source.name.casefold()
    head = source.text[:65536]
    if name.endswith(".service") or "\n[Service]" in f"\n{head}":
        from k31ctl.serve.read.systemd import systemd_launches  # noqa: PLC0415  only for units

        yield from systemd_launches(source)
    elif name.endswith(_YAML) or (not head.startswith("#!") and _is_manifest(head)):
        yield from _of_manifest(source)
    else:
        look = nothing_beside if neighbours is None else neighbours.of(source)
        yield from script_launches(source, look=look)


def _of_manifest(source: Source) -> Iterator[FoundLaunch]:
    from k31ctl.serve.read.compose import compose_launches  # noqa: PLC0415  only for manifests
    from k31ctl.serve.read.kubernetes import kubernetes_launches  # noqa: PLC0415
    from k31ctl.serve.read.yaml_graph import documents  # noqa: PLC0415

    for document in documents(source):
        if document.get("services") is not None and not document.text_at("apiVersion"):
            yield from compose_launches(document)
        else:
            yield from kubernetes_launches(document)


def _is_manifest(head: str) -> bool:
    lines = [line for line in head.splitlines() if line.strip() and not line.startswith("#")]
    return any(line.startswith(("apiVersion:", "services:")) for line in lines[:400])
