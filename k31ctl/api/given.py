"""Values as a caller gives them, checked before anything is read."""

import difflib
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import TypeVar

from k31ctl.api.arguments import checked_kind
from k31ctl.catalog.store import Store, default_folders
from k31ctl.errors import UsageError

Choice = TypeVar("Choice", bound=StrEnum)
Entry = TypeVar("Entry")
Folders = str | Path | Collection[str | Path]


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


def checked_ratio(name: str, value: float | None, *, most: float, least: float = 0.0) -> None:
    """Refuse a number that is not above 0, not ``least`` or more, or more than ``most``."""
    if value is not None and not (value > 0 and least <= value <= most):
        bounds = f"from {least:f}" if least else "above 0 and up"
        raise UsageError(
            f"{value:g} is not {bounds} to {most:,g}",
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
