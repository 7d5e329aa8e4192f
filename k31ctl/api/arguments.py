"""Arguments of the public functions, held against their annotations before anything is read."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from itertools import starmap
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from k31ctl.errors import UsageError

Given = ParamSpec("Given")
Returned = TypeVar("Returned")
_KINDS: Final = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    Path: "a path",
    Sequence: "a list of at least one",
    Collection: "a list",
    Callable: "a function",
    tuple: "a pair",
    Mapping: "a mapping",
}


def checked(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Return a function that refuses arguments of another kind than its annotations say.

    An annotation in quotes names what is not imported, and is not checked. Raises UsageError for a
    value, and TypeError for a keyword that is no option.
    """
    parameters = signature(function).parameters
    kinds, options = _kinds_of(parameters.values())

    @wraps(function)
    def ask(*given: Given.args, **named: Given.kwargs) -> Returned:
        for name, value in (dict(zip(parameters, given, strict=False)) | named).items():
            if options and name not in parameters and name not in kinds:
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument {name!r}"
                )
            left_out = parameters[name].default if name in parameters else Parameter.empty
            is_none_given = left_out == () and isinstance(value, list | tuple) and not value
            if name in kinds and not is_none_given:
                checked_kind(name, value, kinds[name])
        return function(*given, **named)

    return ask


def _kinds_of(parameters: Collection[Parameter]) -> tuple[dict[str, Any], bool]:
    """The kind of every argument by its name, and whether options are among them."""
    kinds: dict[str, Any] = {}
    has_options = False
    for each in parameters:
        if each.kind is Parameter.VAR_KEYWORD:
            has_options = True
            kinds |= get_type_hints(get_args(each.annotation)[0])
        elif not isinstance(each.annotation, str):
            kinds[each.name] = each.annotation
    return kinds, has_options


def checked_kind(name: str, value: object, kind: Any) -> None:
    """Refuse a value that is not of the kind of an argument's annotation, and an empty path."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if not _is_of(value, kind):
        words = (_word(get_origin(each) or each) for each in kinds)
        wanted = " or ".join(word for word in words if word)
        is_number = isinstance(value, str) and "number" in wanted
        hint = "; text such as 8k is for the command line" if is_number else ""
        raise UsageError(
            f"{value!r:.60} is not {wanted}", where=name, remedy=f"{name} takes {wanted}{hint}"
        )
    if Path in kinds and not str(value).strip():
        raise UsageError("an empty name is no path", where=name, remedy="write . for this folder")


def _word(kind: Any) -> str:
    return "" if kind is NoneType else _KINDS.get(kind) or f"a {kind.__name__}"


def _is_of(value: Any, kind: Any) -> bool:
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_of(value, each) for each in inside)
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if origin is tuple:
        is_pair = isinstance(value, tuple | list) and len(value) == len(inside)
        return is_pair and all(starmap(_is_of, zip(value, inside, strict=True)))
    if origin in (Sequence, Collection):
        is_list = isinstance(value, origin) and not isinstance(value, str | bytes)
        is_enough = is_list and (origin is Collection or len(value) > 0)
        return is_enough and all(_is_of(each, inside[0]) for each in value)
    return isinstance(value, origin or kind)
