"""YAML documents with the place of every scalar; aliases are followed and never multiplied."""

from collections.abc import Iterator
from typing import Any, Final

from k31ctl.errors import InputError
from k31ctl.serve.read.found import SourceWord
from k31ctl.serve.read.source import Source
from k31ctl.values import frozen

_MOST_DEPTH: Final = 100
_MOST_EVENTS: Final = 200_000
_MOST_VISITS: Final = 100_000
_MERGE: Final = "<<"


@frozen
class Value:
    """A node of a document: a scalar's text, or its entries."""

    node: Any
    source: Source

    @property
    def text(self) -> str:
        """The scalar's text, empty where it is no scalar."""
        return str(self.node.value) if self._kind == "scalar" else ""

    @property
    def is_text(self) -> bool:
        """Whether it is a scalar."""
        return self._kind == "scalar"

    @property
    def line(self) -> int:
        """The line that it begins in."""
        return int(self.node.start_mark.line) + 1

    @property
    def start(self) -> int:
        """Where it begins in the text."""
        return int(self.node.start_mark.index)

    @property
    def end(self) -> int:
        """Where it ends in the text."""
        return int(self.node.end_mark.index)

    @property
    def _kind(self) -> str:
        return str(self.node.id)

    def items(self) -> "list[Value]":
        """The entries of a list, none where it is none."""
        if self._kind != "sequence":
            return []
        return [Value(node=node, source=self.source) for node in self.node.value]

    def fields(self) -> "dict[str, Value]":
        """The entries of a mapping, those of its merge keys below its own."""
        found: dict[str, Value] = {}
        seen: set[int] = set()
        waiting = [self]
        while waiting:
            holder = waiting.pop(0)
            if id(holder.node) in seen or holder._kind != "mapping":
                continue
            seen.add(id(holder.node))
            for key, node in holder.node.value:
                value = Value(node=node, source=self.source)
                if key.id == "scalar" and key.value == _MERGE:
                    waiting += value.items() or [value]
                elif key.id == "scalar":
                    found.setdefault(str(key.value), value)
        return found

    def get(self, *path: str) -> "Value | None":
        """The value at a path of keys, None where there is none."""
        here: Value | None = self
        for key in path:
            here = here.fields().get(key) if here is not None else None
        return here

    def text_at(self, *path: str) -> str:
        """The scalar at a path of keys, empty where there is none."""
        found = self.get(*path)
        return "" if found is None else found.text

    def word(self) -> SourceWord:
        """The scalar as one word of a command."""
        text, written = self.text, self.source.text[self.start : self.end]
        plain = written == text or (len(written) > 1 and written[1:-1] == text)
        return SourceWord(
            text=text,
            line=self.line,
            start=self.start,
            end=self.end,
            certain=plain,
            resolved="$" not in text and "{{" not in text,
        )


def documents(source: Source) -> tuple[Value, ...]:
    """Return every document; InputError where the text is no YAML, or nested beyond all use."""
    import yaml  # noqa: PLC0415  only manifests need it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(source, yaml, loader)
        nodes = [node for node in yaml.compose_all(source.text, Loader=loader) if node is not None]
    except yaml.YAMLError as error:
        first = str(getattr(error, "problem", None) or error).splitlines()[0]
        mark = getattr(error, "problem_mark", None)
        where = f"{source.name}:{mark.line + 1}" if mark else source.name
        template = "{{" in source.text
        remedy = "render the template first: helm template" if template else "mend the syntax"
        raise InputError(f"not readable as YAML: {first}", where=where, remedy=remedy) from None
    return tuple(Value(node=node, source=source) for node in nodes)


def _check_depth(source: Source, yaml: Any, loader: Any) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(source.text, Loader=loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MOST_DEPTH or number > _MOST_EVENTS:
            line = event.start_mark.line + 1
            raise InputError(
                "nested deeper, or longer, than any manifest",
                where=f"{source.name}:{line}",
                remedy="name the manifest itself",
            )


def mappings(root: Value) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """Return every mapping below a value once, with those that hold it, the nearest first."""
    seen: set[int] = set()
    waiting: list[tuple[Any, tuple[Value, ...]]] = [(root.node, ())]
    while waiting and len(seen) < _MOST_VISITS:
        node, around = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        inner = node.value if node.id == "sequence" else ()
        if node.id == "mapping":
            value = Value(node=node, source=root.source)
            yield value, around
            around = (value, *around)
            inner = [each for _, each in node.value]
        waiting += [(each, around) for each in reversed(inner)]
