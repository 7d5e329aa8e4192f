"""Values as a caller gives them, checked before anything is read."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import starmap
from math import inf
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from k31ctl.catalog.store import Store, default_folders
from k31ctl.errors import UsageError

Choice = TypeVar("Choice", bound=StrEnum)
Entry = TypeVar("Entry")
Folders = str | Path | Collection[str | Path]
_KINDS: Final = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    Path: "a path",
    Sequence: "a list of at least one",
    tuple: "a pair",
    Mapping: "a mapping",
}


def checked_options(function: str, kinds: type, options: Mapping[str, object]) -> None:
    """Refuse keywords that a function's options do not have, and values of another kind."""
    hints = get_type_hints(kinds)
    for name, value in options.items():
        if name not in hints:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        checked_kind(name, value, hints[name])


def checked_kind(name: str, value: object, kind: Any) -> None:
    """Refuse a value that is not of the kind of an argument's annotation."""
    if not _is_of(value, kind):
        kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
        words = (_KINDS.get(get_origin(each) or each) for each in kinds)
        wanted = " or ".join(word for word in words if word)
        hint = "; text such as 8k is for the command line" if isinstance(value, str) else ""
        raise UsageError(
            f"{value!r:.60} is not {wanted}", where=name, remedy=f"{name} takes {wanted}{hint}"
        )


def _is_of(value: Any, kind: Any) -> bool:
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_of(value, each) for each in inside)
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if origin is tuple:
        is_pair = isinstance(value, tuple | list) and len(value) == len(inside)
        return is_pair and all(starmap(_is_of, zip(value, inside, strict=True)))
    if origin is Sequence:
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_list and len(value) > 0 and all(_is_of(each, inside[0]) for each in value)
    return isinstance(value, origin or kind)


def several(given: Entry | Collection[Entry] | None) -> tuple[Entry, ...]:
    """Return numbers as a tuple, of which one may stand for itself."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, Collection) else (given,)


def texts_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return texts, of which one may stand for itself."""
    return (given,) if isinstance(given, str) else tuple(given)


def store_of(profiles: Folders) -> Store:
    """Return the profiles, with those of these folders before ours."""
    return Store(default_folders(paths_of("profiles", profiles)))


def paths_of(name: str, given: Folders) -> list[Path]:
    """Return paths, of which one may stand for itself; raises UsageError for what is none."""
    if isinstance(given, Collection) and not isinstance(given, str):
        return [named_path(name, each) for each in given]
    return [named_path(name, given)]


def named_path(name: str, given: str | Path) -> Path:
    """Return a path; raises UsageError for what is none, and for an empty one."""
    checked_kind(name, given, str | Path)
    if not str(given).strip():
        raise UsageError("an empty name is no path", where=name, remedy="write . for this folder")
    return Path(given)


def path_of(given: str | Path | None) -> Path | None:
    """Return a path, or None where none is given."""
    return None if given is None else Path(given)


def chosen(kind: type[Choice], value: str, *, where: str) -> Choice:
    """Return the member of this value; raises UsageError where there is none."""
    try:
        return kind(value)
    except ValueError:
        raise UsageError(
            f"{value[:40]!r} is none of the choices", where=where, remedy=f"use {', '.join(kind)}"
        ) from None


def chosen_or_none(kind: type[Choice], value: str | None, *, where: str) -> Choice | None:
    """Return the member of this value, or None for None."""
    return None if value is None else chosen(kind, value, where=where)


def checked_ratio(name: str, value: float | None, *, most: float) -> None:
    """Refuse a number that is not positive and finite."""
    if value is not None and not 0 < value <= most:
        raise UsageError(
            f"{value} is not between 0 and {most:g}",
            where=name,
            remedy=f"give {name} a number such as {min(0.9, most):g}",
        )


def checked_positive(name: str, value: float | None) -> None:
    """Refuse a number that is not above 0 and finite."""
    if value is not None and not 0 < value < inf:
        raise UsageError(f"{value} is not above 0", where=name, remedy=f"give {name} more than 0")


def checked_range(
    name: str, value: float | None, *, least: float, most: float | None = None
) -> None:
    """Refuse a number outside of its bounds, both of which are allowed, as a command would."""
    if value is None or (value >= least and (most is None or value <= most)):
        return
    bounds = f"{least} or more" if most is None else f"between {least} and {most}"
    raise UsageError(
        f"{value} is not {bounds}", where=name, remedy=f"give {name} a number that is {bounds}"
    )


def known_ids(option: str, given: Iterable[str] | None, known: Collection[str]) -> frozenset[str]:
    """Return the ids of an option; raises UsageError for one that no check has."""
    names = frozenset(given or ())
    for name in sorted(names):
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"no check is called {name[:60]!r}",
                where=option,
                remedy=f"{hint}checks are: {', '.join(known)}",
            )
    return names
