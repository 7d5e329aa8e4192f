"""Several launch files, or one command, checked."""

import sys
from collections.abc import Sequence
from pathlib import Path

from k31ctl.catalog.store import Store
from k31ctl.core.launch_form import find_call
from k31ctl.core.rules import Finding, Severity
from k31ctl.errors import UsageError
from k31ctl.serve.fix import Fixed, corrected_words, fixed
from k31ctl.serve.lint import Asked, Linted, all_findings, lint
from k31ctl.serve.read.docker import docker_run
from k31ctl.serve.read.found import SourceWord
from k31ctl.serve.read.launch_file import launch_of_words, launches_in
from k31ctl.serve.read.source import MOST_BYTES, Source, read_source, source_of
from k31ctl.values import frozen

STANDARD_INPUT = "-"
COMMAND = "command"


@frozen
class LintedFile:
    """One file, or a command where ``source`` is None, with all that was found in it."""

    name: str
    source: Source | None
    launches: tuple[Linted, ...]
    fixed: Fixed | None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding once."""
        return tuple(all_findings(self.launches))

    def count(self, severity: Severity) -> int:
        """How many findings are this bad."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, each once."""
        return tuple(dict.fromkeys(note for each in self.launches for note in each.notes))

    @property
    def corrected(self) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
        """The commands that findings change, as they are and as they would be."""
        pairs = ((_own_words(each), corrected_words(each)) for each in self.launches)
        return tuple(dict.fromkeys((old, new) for old, new in pairs if old != new))


def lint_files(store: Store, given: Sequence[str], asked: Asked) -> tuple[LintedFile, ...]:
    """Return what is wrong with each file, or with the command that the words are."""
    if not given:
        raise UsageError(
            "there is nothing to check",
            where="FILE",
            remedy="name a launch file, or give a command: k31ctl lint -- vllm serve ...",
        )
    if _is_command(given):
        found = launch_of_words(given)
        linted = tuple(lint(store, each, asked, name=COMMAND) for each in found)
        return (LintedFile(name=COMMAND, source=None, launches=linted, fixed=None),)
    return tuple(_linted(store, _read(name), asked) for name in dict.fromkeys(given))


def _is_command(words: Sequence[str]) -> bool:
    """Whether the words are a command, not names of files."""
    given = [SourceWord(text=word, line=1) for word in words]
    return find_call(words) is not None or (len(words) > 1 and docker_run(given) is not None)


def _linted(store: Store, source: Source, asked: Asked) -> LintedFile:
    launches = tuple(lint(store, each, asked, name=source.name) for each in launches_in(source))
    return LintedFile(
        name=source.name, source=source, launches=launches, fixed=fixed(source, launches)
    )


def _read(name: str) -> Source:
    if name == STANDARD_INPUT:
        return source_of(sys.stdin.buffer.read(MOST_BYTES + 1), name="standard input")
    return read_source(Path(name))


def _own_words(linted: Linted) -> tuple[str, ...]:
    launch = linted.context.launch
    return launch.words[len(launch.wrapper) :]
