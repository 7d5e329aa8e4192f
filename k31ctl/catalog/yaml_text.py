"""YAML text to plain values, without the parts of YAML that surprise.

Anchors, aliases, tags and merge keys are refused: a profile is read as it is written. So are
duplicate keys, numbers that are not finite, and text nested deeper than any profile needs.
"""

import math
from typing import Any, Final, NoReturn

import yaml

from k31ctl.errors import ProfileError

MAX_DEPTH: Final = 64
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PENDING: Final = object()
# No number, truth value, date, null or merge key begins with one of these: most scalars do.
_ALWAYS_TEXT: Final = frozenset("abcdeghijklmpqrsuvwxzABCDEGHIJKLMPQRSUVWXZ(")


class _Container:
    """A list or mapping under construction."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.key: Any = _PENDING

    def add(self, item: Any) -> str:
        """Take the next value, or the next key; return what is wrong with it, if anything."""
        if isinstance(self.value, list):
            self.value.append(item)
        elif self.key is not _PENDING:
            self.value[self.key] = item
            self.key = _PENDING
        elif isinstance(item, dict | list):
            return "a key is not plain text"
        elif item in self.value:
            return f"duplicate key {item!r}"
        else:
            self.key = item
        return ""


def parse_yaml(text: str, *, where: str) -> object:
    """Return the one document in ``text`` as mappings, lists and scalars."""
    loader = _LOADER(text)
    try:
        return _read(loader, where)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        first = str(getattr(error, "problem", None) or error).splitlines()[0]
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        raise ProfileError(
            f"not readable as YAML: {first}{line}", where=where, remedy="mend the file's syntax"
        ) from None
    finally:
        loader.dispose()


def _read(loader: Any, where: str) -> object:
    root = _Container([])
    stack = [root]
    num_documents = 0
    while not isinstance(event := loader.get_event(), yaml.StreamEndEvent):
        if isinstance(event, yaml.DocumentStartEvent):
            num_documents += 1
        elif isinstance(event, yaml.NodeEvent):
            _refuse_surprises(event, where)
            _take(loader, event, stack, where)
        elif isinstance(event, yaml.CollectionEndEvent):
            _put(stack, stack.pop().value, event, where)
    if num_documents != 1:
        raise ProfileError(
            f"{num_documents} documents in one file", where=where, remedy="keep one document"
        )
    return root.value[0]


def _take(loader: Any, event: yaml.NodeEvent, stack: list[_Container], where: str) -> None:
    match event:
        case yaml.ScalarEvent():
            _put(stack, _scalar(loader, event), event, where)
        case yaml.MappingStartEvent():
            stack.append(_Container({}))
        case yaml.SequenceStartEvent():
            stack.append(_Container([]))
    if len(stack) > MAX_DEPTH:
        _refuse(f"nested deeper than {MAX_DEPTH} levels", event, where)


def _put(stack: list[_Container], item: Any, event: yaml.Event, where: str) -> None:
    if problem := stack[-1].add(item):
        _refuse(problem, event, where)


def _scalar(loader: Any, event: yaml.ScalarEvent) -> Any:
    if not event.implicit[0] or event.value[:1] in _ALWAYS_TEXT:
        return event.value
    tag = loader.resolve(yaml.ScalarNode, event.value, event.implicit)
    value = loader.construct_object(yaml.ScalarNode(tag, event.value))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{event.value} is not a finite number")
    return value


def _refuse_surprises(event: yaml.NodeEvent, where: str) -> None:
    if event.anchor is not None:
        _refuse("anchors and aliases are not read", event, where)
    if getattr(event, "tag", None) is not None:
        _refuse("tags are not read", event, where)


def _refuse(what: str, event: yaml.Event, where: str) -> NoReturn:
    line = event.start_mark.line + 1 if event.start_mark else 0
    raise ProfileError(what, where=f"{where}:{line}", remedy="write every value out, once")
