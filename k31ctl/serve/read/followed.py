"""Scripts that other files run, read as they are run there: with what the caller gives them."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from k31ctl.core.launch_form import find_call
from k31ctl.core.rules import FileKind
from k31ctl.serve.read.found import Assigned, FoundLaunch, SourceWord
from k31ctl.serve.read.neighbours import Neighbours, script_at
from k31ctl.serve.read.scripts import script_launches
from k31ctl.serve.read.source import Source

_MOST_DEPTH: Final = 6
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")


def followed(
    found: FoundLaunch, source: Source, neighbours: Neighbours, *, depth: int = 0
) -> Iterator[FoundLaunch]:
    """Return the command itself, or what the script that it runs starts in its place."""
    at = None if find_call(found.texts) is not None else script_at(found.words)
    if at is None or depth >= _MOST_DEPTH:
        yield found
        return
    script = neighbours.of(source)(found.words[at].text)
    if script is None:
        yield found
        return
    inside = script_launches(
        script,
        look=neighbours.of(script),
        environment=_given(found, at),
        arguments=tuple(map(_elsewhere, found.words[at + 1 :])),
    )
    for each in inside:
        placed = _in_place(each, found, script, is_job=found.texts[0] == "sbatch")
        yield from followed(placed, script, neighbours, depth=depth + 1)


def _in_place(
    each: FoundLaunch, around: FoundLaunch, script: Source, *, is_job: bool
) -> FoundLaunch:
    """A launch of a script with the container, nodes and kind of the command that runs it."""
    own_kind = is_job or each.kind is FileKind.DOCKER
    return replace(
        each,
        source=each.source or script,
        kind=each.kind if own_kind else around.kind,
        container=each.container or around.container,
        nodes=each.nodes or around.nodes,
        gpus_per_node=each.gpus_per_node or around.gpus_per_node,
        gpu_hint=each.gpu_hint or around.gpu_hint,
        images=each.images or around.images,
        installs=(*around.installs, *each.installs),
        open_environment=each.open_environment or around.open_environment,
    )


def _given(found: FoundLaunch, at: int) -> dict[str, Assigned]:
    """The variables that a script is run with; their places are in another file."""
    own = {
        name: Assigned(value=value, resolved=word.resolved)
        for word in found.words[:at]
        if _ASSIGNMENT.match(word.text)
        for name, _, value in (word.text.partition("="),)
    }
    outer = {
        name: replace(each, line=0, start=-1, end=-1) for name, each in found.environment.items()
    }
    return {**outer, **own}


def _elsewhere(word: SourceWord) -> SourceWord:
    """A word of the caller, which cannot be changed in the script."""
    return replace(word, line=0, start=-1, end=-1, certain=False)
