"""Arguments of a tool call: typed pieces of text in the prompt, a JSON object outside."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from k31ctl.core.chat_format import json_fields as fields
from k31ctl.core.chat_format.segments import Segment, element, plain
from k31ctl.values import frozen

# The format knows no integer; a model that was given a schema with one may write it all the same.
_JSON_TYPES: Final = frozenset(("number", "integer", "boolean", "null", "object", "array"))


class Argument(NamedTuple):
    """One argument as the prompt holds it."""

    key: str
    type: str
    text: str


@frozen
class Arguments:
    """The arguments of one call; ``raw_json`` stands for all of them where they were no JSON."""

    items: tuple[Argument, ...] = ()
    raw_json: str | None = None


def read_arguments(value: Any, where: str) -> Arguments:
    """Return the arguments that a request gives: an object, its JSON, or nothing."""
    if isinstance(value, str):
        if not value.strip():
            return Arguments()
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return Arguments(raw_json=value)
    given = fields.mapping({} if value is None else value, where)
    return Arguments(
        items=tuple(Argument(key, _type(item), _text(item)) for key, item in given.items())
    )


def argument_segments(arguments: Arguments) -> Iterator[Segment]:
    """The elements inside a call."""
    if arguments.raw_json is not None:
        yield from element("json", plain(arguments.raw_json), attributes=(("type", "object"),))
    for key, kind, text in arguments.items:
        yield from element("argument", plain(text), attributes=(("key", key), ("type", kind)))


def arguments_json(items: Sequence[Argument | str]) -> str:
    """A JSON object of the arguments that a model wrote; text is that of a ``json`` element.

    Such a text alone stays as it is, JSON or not; beside other arguments its object is joined with
    them. The last value of a key counts. What claims a JSON type and is no JSON stays as a string.
    """
    said = [item for item in items if not isinstance(item, str) or item.strip()]
    if len(said) == 1 and isinstance(said[0], str):
        return said[0]
    found: dict[str, Any] = {}
    for item in said:
        if isinstance(item, str):
            inner = _value("object", item)
            found |= inner if isinstance(inner, dict) else {}
        else:
            found[item.key] = _value(item.type, item.text)
    return json.dumps(found, ensure_ascii=False)


def _value(kind: str, text: str) -> Any:
    if kind not in _JSON_TYPES:
        return text
    try:
        value = json.loads(text, parse_constant=_refuse)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _type(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case int() | float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
        case _:
            return "array"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
