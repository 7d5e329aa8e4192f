"""Which flag each word of a command line is, decided as Python's argparse decides it.

Source: CPython 3.11, Lib/argparse.py, ``_parse_optional`` and ``_get_option_tuples``.
"""

import re
from typing import Final

from k31ctl.core.flags import Flag, flags_by_spelling
from k31ctl.values import frozen

HELP: Final = Flag(names=("-h", "--help"), dest="help", action="help", type="bool", nargs=0)
_NEGATIVE_NUMBER: Final = re.compile(r"^-\d+$|^-\d*\.\d+$")


@frozen
class Word:
    """A word that the parser sees, and where in the command it was written."""

    text: str
    positions: tuple[int, ...]


@frozen
class Match:
    """A word that is a flag: which one, in which spelling, and the value behind its ``=``.

    No flag is given where none is known; several ``candidates`` mean that the word is ambiguous.
    """

    flag: Flag | None
    spelling: str
    explicit: str | None = None
    candidates: tuple[str, ...] = ()


@frozen
class Grammar:
    """The flags of one parser, by spelling, and whether it takes unambiguous beginnings."""

    spellings: dict[str, Flag]
    positionals: tuple[Flag, ...]
    abbreviations: bool
    engine: str

    def match(self, text: str) -> Match | None:
        """Return the flag that a word is, or None where it is a value."""
        if not text.startswith("-"):
            return None
        if text in self.spellings:
            return Match(flag=self.spellings[text], spelling=text)
        head, equals, value = text.partition("=")
        if equals and head in self.spellings:
            return Match(flag=self.spellings[head], spelling=head, explicit=value)
        found = self._beginnings(text) if len(text) > 1 else []
        if len(found) == 1:
            return found[0]
        if not found and (len(text) == 1 or _NEGATIVE_NUMBER.match(text) or " " in text):
            return None
        return Match(flag=None, spelling=text, candidates=tuple(m.spelling for m in found))

    def _beginnings(self, text: str) -> list[Match]:
        """Every flag that the word may be the beginning of."""
        if text.startswith("--"):
            if not self.abbreviations:
                return []
            head, equals, value = text.partition("=")
            given = value if equals else None
            return [
                Match(flag=flag, spelling=spelling, explicit=given)
                for spelling, flag in self.spellings.items()
                if spelling.startswith(head)
            ]
        found = []
        for spelling, flag in self.spellings.items():
            if spelling == text[:2]:
                found.append(Match(flag=flag, spelling=spelling, explicit=text[2:]))
            elif spelling.startswith(text):
                found.append(Match(flag=flag, spelling=spelling))
        return found


def grammar_of(flags: tuple[Flag, ...], *, engine: str, abbreviations: bool) -> Grammar:
    """Return what a parser with these flags, and with ``--help``, knows."""
    return Grammar(
        spellings=flags_by_spelling((HELP, *flags)),
        positionals=tuple(flag for flag in flags if not flag.names),
        abbreviations=abbreviations,
        engine=engine,
    )
