"""Values as a caller gives them, checked before anything is read."""

import difflib
from collections.abc import Collection, Iterable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from k31ctl.catalog.store import Store, default_folders
from k31ctl.errors import UsageError

Choice = TypeVar("Choice", bound=StrEnum)
Folders = Collection[str | Path]


def store_of(profiles: Folders) -> Store:
    """Return the profiles, with those of these folders before ours."""
    return Store(default_folders([Path(folder) for folder in profiles]))


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


def checked_count(name: str, value: int | None, *, least: int, most: int | None) -> None:
    """Refuse a count outside of its bounds, both of which are allowed."""
    if value is not None and (value < least or (most is not None and value > most)):
        bounds = f"at least {least}" if most is None else f"{least} to {most}"
        raise UsageError(
            f"{value} is not {bounds}", where=name, remedy=f"give {name} a number of {bounds}"
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
