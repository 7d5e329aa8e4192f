"""Our reader of arguments against Python's argparse, on the flags of the real engines."""

import argparse
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.argument_reader import Reading, read_arguments
from k31ctl.core.argument_words import Grammar, Word, grammar_of
from k31ctl.core.flags import Flag, FlagCatalog
from k31ctl.core.launch import Program, Stage
from tests.core.argparse_oracle import Refused, parsed, parser_of
from tests.core.catalogs import CATALOGS, ENGINES

VALUES = ["8", "-1", "0.9", "auto", "", "a b", "-x y", "{}", '{"a": 1}', "1k", "None", "[1]", "-.5"]


@cache
def grammar(engine: str) -> Grammar:
    c = CATALOGS[engine]
    return grammar_of(c.flags, engine=engine, abbreviations=c.abbreviations)


@cache
def parser(engine: str) -> argparse.ArgumentParser:
    c = CATALOGS[engine]
    return parser_of(c.flags, engine=engine, abbreviations=c.abbreviations)


def read(words: list[str], grammar: Grammar) -> Reading:
    numbered = [Word(text=word, positions=(at,)) for at, word in enumerate(words)]
    return read_arguments(numbered, grammar, program=Program.ENGINE)


def values(reading: Reading, catalog: FlagCatalog) -> dict[str, Any]:
    """What the settings amount to, in the shape of argparse's namespace."""
    appending = {flag.dest for flag in catalog.flags if flag.appends}
    found: dict[str, Any] = {}
    for setting in reading.settings:
        if setting.dest in appending:
            found.setdefault(setting.dest, []).append(setting.value)
        else:
            plain = list(setting.value) if isinstance(setting.value, tuple) else setting.value
            found[setting.dest] = plain
    return found


def words_for(flag: Flag) -> st.SearchStrategy[list[str]]:
    """One use of a flag: right or wrong, whole or shortened, with or without its values."""
    spelling = st.sampled_from(flag.spellings)
    shortened = st.builds(
        lambda name, cut: name[: max(3, len(name) - cut)], spelling, st.integers(0, 12)
    )
    good = [str(c) for c in flag.choices] if flag.choices else []
    value = st.sampled_from([*VALUES, *good, *good])
    apart = st.builds(
        lambda name, following: [name, *following],
        st.one_of(spelling, spelling, shortened),
        st.lists(value, max_size=3),
    )
    joined = st.builds(lambda name, v: [f"{name}={v}"], st.one_of(spelling, shortened), value)
    return st.one_of(apart, apart, joined)


def commands(catalog: FlagCatalog) -> st.SearchStrategy[list[str]]:
    named = [flag for flag in catalog.flags if flag.names]
    uses = st.sampled_from([words_for(flag) for flag in named]).flatmap(lambda use: use)
    piece = st.one_of(
        uses,
        uses,
        st.sampled_from([["--no-such-flag"], ["-z"], ["stray"], ["-tp8"], ["-t", "8"], ["-"]]),
    )
    needed = [f.names[0] for f in catalog.flags if f.required]
    start = st.sampled_from([[], *[[name, "some/model"] for name in needed] * 3])
    return st.builds(
        lambda head, pieces: [*head, *(word for words in pieces for word in words)],
        start,
        st.lists(piece, max_size=5),
    )


COMMANDS = {engine: commands(catalog) for engine, catalog in CATALOGS.items()}


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_command_is_taken_or_refused_as_argparse_does(engine: str, data: st.DataObject) -> None:
    catalog = CATALOGS[engine]
    words = data.draw(COMMANDS[engine])
    reading = read(words, grammar(engine))
    refused = [p for p in reading.problems if p.stage is Stage.PARSING]
    try:
        expected = parsed(parser(engine), words)
    except Refused as why:
        assert refused, why
        return
    if expected is not None:
        assert not refused
        assert values(reading, catalog) == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_every_beginning_of_every_flag_means_what_argparse_makes_of_it(engine: str) -> None:
    theirs, ours = parser(engine), grammar(engine)
    names = [name for name in ours.spellings if name.startswith("--")]
    for beginning in {name[:end] for name in names for end in range(3, len(name) + 1)}:
        match = ours.match(beginning)
        assert match is not None
        try:
            found = theirs._parse_optional(beginning)
        except (Refused, argparse.ArgumentError):  # by release of Python
            assert match.candidates
            continue
        assert found is not None
        if isinstance(found, list) and len(found) > 1:  # and later ones return all
            assert match.candidates
            continue
        action = found[0] if isinstance(found, tuple) else found[0][0]
        assert (match.flag is None) == (action is None)
        if match.flag is not None and action is not None:
            assert match.flag.dest == action.dest
