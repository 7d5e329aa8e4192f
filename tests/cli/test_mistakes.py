"""Mistakes that typer finds are told as all others are."""

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.main import get_command

from k31ctl.cli.main import app_with, main

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("arguments", "error", "at", "do"),
    [
        ("plan --tp 0", "0 is not 1 or more", "--tp", "k31ctl plan --help explains --tp"),
        ("plan --draft-tokens 65", "65 is not between 0 and 64", "--draft-tokens", "--help"),
        ("plan --tp x", "'x' is not a whole number", "--tp", "explains --tp"),
        ("plan --memory-fraction x", "'x' is not a number", "--memory-fraction", "--help"),
        ("plan --nodse 3", "no such option: --nodse", "--nodse", "did you mean --nodes?"),
        ("plan --state-dtype fp31", "'fp31' is not one of", "--state-dtype", "did you mean fp32?"),
        ("plan --zzz", "no such option: --zzz", "--zzz", "k31ctl plan --help"),
        ("plan --tp", "option '--tp' requires an argument", "--tp", "--help"),
        ("plan --json=3", "option '--json' does not take a value", "--json", "--help"),
        ("plan a b", "got unexpected extra argument", "k31ctl plan", "k31ctl plan --help"),
        ("pln", "no such command 'pln'", "k31ctl", "did you mean 'plan'?"),
        ("profiles lst", "no such command 'lst'", "k31ctl profiles", "did you mean 'list'?"),
        ("inspect", "CHECKPOINT is missing", "CHECKPOINT", "k31ctl inspect --help"),
        ("profiles check /none", "path '/none' does not exist", "[PATHS]...", "--help"),
    ],
)
def test_a_mistake_gets_three_lines_and_the_nearest_that_there_is(
    k31ctl: Run, arguments: str, error: str, at: str, do: str
) -> None:
    done = k31ctl(*arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    first, second, third = done.stderr.splitlines()
    assert first.startswith(f"error: {error}")
    assert second == f"   at: {at}"
    assert third.startswith("   do: ")
    assert do in third


@pytest.mark.parametrize("arguments", ["", "profiles"])
def test_without_a_command_the_help_is_shown(k31ctl: Run, arguments: str) -> None:
    done = k31ctl(*arguments.split())
    assert (done.returncode, done.stderr) == (2, "")
    assert "Usage: k31ctl" in done.stdout


def test_the_most_nodes_are_as_many_as_the_most_ranks(k31ctl: Run) -> None:
    done = k31ctl("plan", "--nodes", "4097")
    assert done.returncode == 2
    assert "4097 is not between 1 and 4096" in done.stderr


def empty_words(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every argument, and every option with a value, of every command, given as an empty word."""
    for name, each in getattr(command, "commands", {}).items():
        yield from empty_words(each, (*words, name))
    for parameter in command.params if words else ():
        first = parameter.opts[0]
        if not first.startswith("-"):
            yield (*words, "")
        elif not parameter.is_flag:
            yield (*words, first, " ")
            yield (*words, f"{first}=")


def test_an_empty_name_is_one_mistake_whatever_it_is_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    every = set(empty_words(get_command(app_with())))
    assert {("smoke", ""), ("bench", "diff", ""), ("serve", "--out=")} <= every
    for words in (*every, ("",), ("bench", "compare", "run", ""), ("verify", "--deep", "")):
        with pytest.raises(SystemExit) as stop:
            main(words)
        told = capsys.readouterr()
        assert (stop.value.code, told.out) == (2, ""), words
        assert told.err.startswith("error: an empty name names nothing\n   at: k31ctl "), words


def test_an_empty_word_of_the_command_that_is_checked_is_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["lint", "--", "vllm", "serve", "moonshotai/Kimi-K3", "--served-model-name", ""])
    assert stop.value.code == 4
    assert "--served-model-name ''" in capsys.readouterr().out
