"""Mappings to frozen dataclasses; a wrong key or value is named by its full path.

Fields say what they hold through their annotations. A field whose YAML key differs from its name
carries it as ``metadata={"key": ...}``; quantities are the markers of ``units``.
"""

import difflib
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from functools import cache, partial
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from k31ctl import units
from k31ctl.errors import ProfileError
from k31ctl.units import Unit

T = TypeVar("T")
_Decoder = Callable[[object, str], Any]
_MAX_SHOWN = 60


class _BadValue(Exception):  # noqa: N818 - never leaves this module
    """A value that does not decode, before the file it came from is known."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    decoder: _Decoder
    required: bool


def decode(kind: type[T], raw: object, *, where: str) -> T:
    """Return ``raw`` as a ``kind``, or raise a ``ProfileError`` that names the first bad key."""
    try:
        return cast("T", _decoder(cast("Any", kind))(raw, ""))
    except _BadValue as bad:
        raise ProfileError(bad.what, where=where, remedy=bad.remedy) from None


@cache
def _decoder(hint: Any) -> _Decoder:
    origin = get_origin(hint)
    if origin is not None:
        return _GENERIC[origin](get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return partial(_choice, {member.value: member for member in hint})
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(_dataclass, hint)
    return _scalar_decoder(hint)


def _scalar_decoder(hint: Any) -> _Decoder:
    known: dict[Any, _Decoder] = {
        Any: _passthrough,
        object: _passthrough,
        bool: partial(_typed, bool, "true or false"),
        int: partial(_typed, int, "a whole number"),
        str: partial(_typed, str, "text; quote it"),
        float: _number,
        date: _date,
    }
    if hint not in known:
        raise TypeError(f"no profile can hold a {hint!r}")
    return known[hint]


def _quantity_decoder(arguments: tuple[Any, ...]) -> _Decoder:
    marker = next((mark for mark in arguments[1:] if isinstance(mark, Unit)), None)
    if marker is None:
        return _decoder(arguments[0])
    read = units.parse_bytes if arguments[0] is int else partial(units.parse, unit=marker.symbol)
    return partial(_quantity, read, marker.symbol)


def _union_decoder(arguments: tuple[Any, ...]) -> _Decoder:
    others = [_decoder(argument) for argument in arguments if argument is not type(None)]
    if len(others) == len(arguments):
        return partial(_first_of, others)
    return partial(_optional, others[0] if len(others) == 1 else partial(_first_of, others))


def _tuple_decoder(arguments: tuple[Any, ...]) -> _Decoder:
    if len(arguments) == 2 and arguments[1] is Ellipsis:  # noqa: PLR2004 - tuple[X, ...]
        return partial(_sequence, _decoder(arguments[0]))
    return partial(_fixed, [_decoder(argument) for argument in arguments])


def _choice_decoder(arguments: tuple[Any, ...]) -> _Decoder:
    return partial(_choice, {choice: choice for choice in arguments})


def _mapping_decoder(arguments: tuple[Any, ...]) -> _Decoder:
    return partial(_mapping, _decoder(arguments[1]))


_GENERIC: Final[dict[Any, Callable[[tuple[Any, ...]], _Decoder]]] = {
    Annotated: _quantity_decoder,
    Union: _union_decoder,
    types.UnionType: _union_decoder,
    Literal: _choice_decoder,
    tuple: _tuple_decoder,
    dict: _mapping_decoder,
    Mapping: _mapping_decoder,
}


def _passthrough(raw: object, _path: str) -> object:
    return raw


def _typed(kind: type, expected: str, raw: object, path: str) -> object:
    if type(raw) is not kind:
        raise _wrong(raw, path, expected)
    return raw


def _number(raw: object, path: str) -> float:
    if type(raw) not in (int, float) or not math.isfinite(value := _as_float(raw)):
        raise _wrong(raw, path, "a finite number")
    return value


def _as_float(raw: object) -> float:
    try:
        return float(cast("float", raw))
    except OverflowError:
        return math.inf


def _date(raw: object, path: str) -> date:
    if isinstance(raw, date) and not isinstance(raw, datetime):
        return raw
    try:
        return date.fromisoformat(cast("str", raw))
    except (TypeError, ValueError):
        raise _wrong(raw, path, "a date such as 2026-11-29") from None


def _quantity(read: Callable[[str], Any], symbol: str, raw: object, path: str) -> Any:
    if not isinstance(raw, str):
        raise _wrong(raw, path, f"a quantity with its unit, in {symbol}")
    try:
        return read(raw)
    except ValueError as error:
        raise _BadValue(f"{path}: {error}", f"write {path} with its unit, {symbol}") from None


def _choice(choices: Mapping[Any, Any], raw: object, path: str) -> Any:
    for choice, value in choices.items():
        if type(raw) is type(choice) and raw == choice:
            return value
    written = ", ".join(str(choice) for choice in choices)
    raise _wrong(raw, path, f"one of {written}")


def _optional(inner: _Decoder, raw: object, path: str) -> Any:
    return None if raw is None else inner(raw, path)


def _first_of(decoders: Sequence[_Decoder], raw: object, path: str) -> Any:
    """Decode with the first that accepts; where none does, the one that got furthest complains."""
    failures: list[_BadValue] = []
    for decoder in decoders:
        try:
            return decoder(raw, path)
        except _BadValue as bad:
            failures.append(bad)
    raise max(failures, key=lambda bad: len(bad.what.partition(":")[0]))


def _sequence(inner: _Decoder, raw: object, path: str) -> tuple[Any, ...]:
    if not isinstance(raw, list):
        raise _wrong(raw, path, "a list")
    return tuple(inner(entry, f"{path}[{index}]") for index, entry in enumerate(raw))


def _fixed(inners: Sequence[_Decoder], raw: object, path: str) -> tuple[Any, ...]:
    if not isinstance(raw, list) or len(raw) != len(inners):
        raise _wrong(raw, path, f"a list of {len(inners)}")
    return tuple(
        inner(entry, f"{path}[{index}]")
        for index, (inner, entry) in enumerate(zip(inners, raw, strict=True))
    )


def _mapping(inner: _Decoder, raw: object, path: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise _wrong(raw, path, "a mapping")
    for key in raw:
        _typed(str, "text; quote it", key, _joined(path, key))
    return {key: inner(value, _joined(path, key)) for key, value in raw.items()}


def _dataclass(kind: type, raw: object, path: str) -> Any:
    if not isinstance(raw, dict):
        raise _wrong(raw, path, "a mapping")
    table = _fields_of(kind)
    for key in raw:
        if key not in table:
            raise _unknown(key, path, [*table])
    values = {}
    for key, entry in table.items():
        if key in raw:
            values[entry.name] = entry.decoder(raw[key], _joined(path, key))
        elif entry.required:
            raise _BadValue(
                f"missing key {_joined(path, key)}", f"add {_joined(path, key)} to the file"
            )
    try:
        return kind(**values)
    except ValueError as error:
        raise _BadValue(f"{path or 'profile'}: {error}", "make the values agree") from None


@cache
def _fields_of(kind: type) -> dict[str, _Field]:
    hints = get_type_hints(kind, include_extras=True)
    return {
        entry.metadata.get("key", entry.name): _Field(
            entry.name,
            _decoder(hints[entry.name]),
            entry.default is MISSING and entry.default_factory is MISSING,
        )
        for entry in fields(kind)
        if entry.init
    }


def _unknown(key: object, path: str, known: list[str]) -> _BadValue:
    near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
    remedy = (
        f"did you mean {_joined(path, near[0])}?"
        if near
        else f"remove it, or use one of {', '.join(sorted(known))}"
    )
    return _BadValue(f"unknown key {_joined(path, key)}", remedy)


def _wrong(raw: object, path: str, expected: str) -> _BadValue:
    name = path or "profile"
    return _BadValue(f"{name}: {_shown(raw)} is not {expected}", f"write {name} as {expected}")


def _joined(path: str, key: object) -> str:
    return f"{path}.{_shown_key(key)}" if path else _shown_key(key)


def _shown_key(key: object) -> str:
    return str(key)[:_MAX_SHOWN]


def _shown(raw: object) -> str:
    match raw:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case None:
            return "null"
        case int() if raw.bit_length() > 4 * _MAX_SHOWN:
            return "a huge number"
    text = repr(raw)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
