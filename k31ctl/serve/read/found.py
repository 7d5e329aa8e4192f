"""A launch as a file has it: its words and variables with the places where they are written."""

from collections.abc import Sequence
from dataclasses import field, replace

from k31ctl.core.rules import Container, FileKind
from k31ctl.serve.read.source import Source
from k31ctl.values import frozen


@frozen
class SourceWord:
    """A word of a command; ``start`` and ``end`` enclose what is written for it in the file.

    ``certain`` is whether exactly that stands there, so that it can be replaced; ``resolved`` is
    false where a part of the word is not known before the file is run; ``nested`` is whether it
    stands inside other quotes or a block of text.
    """

    text: str
    line: int
    start: int = -1
    end: int = -1
    certain: bool = False
    resolved: bool = True
    nested: bool = False


@frozen
class Assigned:
    """The value of a variable, and where it is set; ``line`` 0 where that is not known."""

    value: str
    line: int = 0
    start: int = -1
    end: int = -1
    resolved: bool = True


@frozen
class FoundLaunch:
    """One command of a file that may start an engine, and what the file says about its place.

    ``head`` is the beginning of the file, which may say with what it was made; ``on_ray`` is
    whether the file speaks of a Ray cluster, ``has_carriage_returns`` whether its lines end in
    CR and LF, ``router_ports`` what a router in it knows prefill
    servers by, ``memory_bytes`` the host memory that a batch job asks for. ``source`` is the
    script that the words stand in where another file runs it, None where it is the file itself.
    ``model`` is what is served where the command only names a folder. ``expanded`` are the
    variables that the file itself reads.
    """

    words: tuple[SourceWord, ...]
    environment: dict[str, Assigned] = field(default_factory=dict)
    kind: FileKind
    container: Container | None = None
    nodes: int = 0
    gpus_per_node: int = 0
    memory_bytes: int = 0
    gpu_hint: str = ""
    images: tuple[str, ...] = ()
    installs: tuple[str, ...] = ()
    open_environment: bool = False
    model: str = ""
    head: str = ""
    on_ray: bool = False
    has_carriage_returns: bool = False
    expanded: frozenset[str] = frozenset()
    router_ports: tuple[int, ...] = ()
    source: Source | None = None

    @property
    def line(self) -> int:
        """The line that the command begins in."""
        return next((word.line for word in self.words if word.line), 1)

    @property
    def texts(self) -> tuple[str, ...]:
        """The words as text."""
        return tuple(word.text for word in self.words)


def relocated(
    words: Sequence[SourceWord], inner: str, outer: str, *, start: int, end: int
) -> tuple[SourceWord, ...]:
    """Return words of a text that stands inside another, with their places in the outer one.

    What is written for a word is looked for in the outer text, one after the other; a word that is
    not found as it is keeps the line of the one before it and is not certain.
    """
    found: list[SourceWord] = []
    cursor, line = start, outer.count("\n", 0, start) + 1
    for word in words:
        written = inner[word.start : word.end] if word.start >= 0 else ""
        at = outer.find(written, cursor, end) if written else -1
        if at < 0:
            found.append(replace(word, line=line, start=-1, end=-1, certain=False))
            continue
        line += outer.count("\n", cursor, at)
        cursor = at + len(written)
        found.append(replace(word, line=line, start=at, end=cursor, nested=True))
        line += written.count("\n")
    return tuple(found)
