"""A mistake on the command line that typer found, in the three parts of every other failure."""

import difflib
import re
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Any, Final

import typer

from k31ctl.errors import UsageError

# What typer raises for such a mistake; of its kinds only this subclass has a public name.
Mistake: Final[type[Exception]] = typer.BadParameter.__base__  # type: ignore[assignment]

_KINDS: Final = {"int": "a whole number", "integer": "a whole number", "float": "a number"}
_NOT_A_KIND: Final = re.compile(r"(.*) is not a valid (int|integer|float)\b.*", re.DOTALL)
_NOT_IN_RANGE: Final = re.compile(r"(\S+) is not in the range (?:x>=)?([\d.]+)(?:<=x<=([\d.]+))?")
_NOT_A_CHOICE: Final = re.compile(r"'(.*)' is not one of (.*)", re.DOTALL)


def is_help(mistake: Exception) -> bool:
    """Whether it only says that no command was given, for which the help is already shown."""
    return not str(mistake) and not isinstance(mistake, typer.BadParameter)


def refuse_empty_words(arguments: Sequence[str], *, num_command_words: int) -> None:
    """Raise UsageError for an empty word before a bare ``--``: it names nothing.

    Words are looked at as they are typed: of an empty path typer makes the working folder.
    """
    for before, word in pairwise(("", *takewhile("--".__ne__, arguments))):
        option, has_value, value = word.partition("=") if word.startswith("--") else ("", "", word)
        if value.strip() or (option and not has_value):
            continue
        asked_of = option or (before if before.startswith("-") else "")
        words = (text for text in (*arguments[:num_command_words], asked_of) if text.strip())
        raise UsageError(
            "an empty name names nothing",
            where=" ".join(("k31ctl", *words, "''")),
            remedy="write what is meant, such as . for this folder, or leave it out",
        )


def usage_error(mistake: Exception) -> UsageError:
    """Return a mistake as what, where and remedy, with the nearest thing that there is."""
    context: Any = getattr(mistake, "ctx", None)
    command = context.command_path if context else "k31ctl"
    parameter: Any = getattr(mistake, "param", None)
    name = _name(parameter) or getattr(mistake, "option_name", "")
    found = (getattr(mistake, "message", "") or f"{name or 'a value'} is missing").rstrip(".")
    found, _, guess = found.partition(". Did you mean ")
    near = guess.rstrip("?") or _nearest(found, getattr(mistake, "possibilities", None) or ())
    hint = f"did you mean {near}? " if near else ""
    # A flag without its value comes without the command that it was given to.
    explained = f"explains {name}" if parameter is not None else "shows what there is"
    place = command if context or not name else "k31ctl COMMAND"
    return UsageError(
        _reworded(found), where=name or command, remedy=f"{hint}{place} --help {explained}"
    )


def _name(parameter: Any) -> str:
    """An option as it is typed, an argument as the help calls it; empty where there is none."""
    if parameter is None:
        return ""
    first = str(parameter.opts[0])
    return first if first.startswith("-") else str(parameter.metavar or first.upper())


def _nearest(found: str, options: Sequence[str]) -> str:
    """The closest option, or of the choices that a message lists; empty where none is close."""
    if options:
        return options[0]
    listed = _NOT_A_CHOICE.fullmatch(found)
    if listed is None:
        return ""
    choices = re.findall(r"'([^']*)'", listed[2])
    return next(iter(difflib.get_close_matches(listed[1], choices, n=1, cutoff=0.4)), "")


def _reworded(found: str) -> str:
    if (kind := _NOT_A_KIND.fullmatch(found)) is not None:
        return f"{kind[1]} is not {_KINDS[kind[2]]}"
    if (outside := _NOT_IN_RANGE.fullmatch(found)) is not None:
        value, low, high = outside.groups()
        return (
            f"{value} is not between {low} and {high}" if high else f"{value} is not {low} or more"
        )
    return found if found[1:2].isupper() else found[:1].lower() + found[1:]
