"""Several launch files, or one command, checked."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from k31ctl.catalog.store import Store
from k31ctl.core.launch_form import find_call
from k31ctl.core.rules import Finding, Severity
from k31ctl.errors import InputError, K31Error, UsageError
from k31ctl.serve.fix import Fixed, corrected_words, fixed
from k31ctl.serve.gather import ENGINES
from k31ctl.serve.lint import Asked, Linted, all_findings, lint
from k31ctl.serve.read.docker import docker_run
from k31ctl.serve.read.found import FoundLaunch, SourceWord
from k31ctl.serve.read.launch_file import NothingStartedError, launch_of_words, launches_in
from k31ctl.serve.read.neighbours import Neighbours
from k31ctl.serve.read.shell_text import expanded_names
from k31ctl.serve.read.source import MOST_BYTES, Source, read_source, source_of
from k31ctl.serve.waive import Waived, require_rules, without_waived
from k31ctl.values import frozen

STANDARD_INPUT = "-"
COMMAND = "command"
_HEAD: Final = 4096
_MOST_FILES: Final = 256
_RAY: Final = re.compile(r"\bray (?:start|status)\b|ray_cluster|multi-node-serving|kind: Ray")
_ENDINGS: Final = (".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml", ".service")


@frozen
class LintedFile:
    """One file, or a command where ``source`` is None, with all that was found in it.

    ``failure`` is why it could not be checked; then nothing was found in it. ``waived`` is what
    does not count, and ``of_waivers`` what is wrong with the comments that say so.
    """

    name: str
    source: Source | None
    launches: tuple[Linted, ...]
    fixed: Fixed | None
    failure: K31Error | None = None
    waived: tuple[Waived, ...] = ()
    of_waivers: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding once."""
        return (*all_findings(self.launches), *self.of_waivers)

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
    require_rules(asked.ignore)
    if not given:
        raise UsageError(
            "there is nothing to check",
            where="FILE",
            remedy="name a launch file, or give a command: k31ctl lint -- vllm serve ...",
        )
    if _is_command(given):
        _require_no_file(given)
        found = launch_of_words(given)
        linted = tuple(lint(store, each, asked, name=COMMAND) for each in found)
        return (_file(COMMAND, None, linted, asked),)
    return _checked(store, given, asked)


def _is_command(words: Sequence[str]) -> bool:
    """Whether the words are a command, not names of files."""
    given = [SourceWord(text=word, line=1) for word in words]
    return find_call(words) is not None or (len(words) > 1 and docker_run(given) is not None)


def _require_no_file(words: Sequence[str]) -> None:
    """UsageError where a launch file stands in front of a command."""
    if len(words) > 1 and words[0].casefold().endswith(_ENDINGS):
        raise UsageError(
            "files and a command cannot be checked together",
            where=words[0][:200],
            remedy="check the files first, then the command behind --; a script that starts the "
            "command is named with its shell: -- bash SCRIPT COMMAND...",
        )


def _checked(store: Store, given: Sequence[str], asked: Asked) -> tuple[LintedFile, ...]:
    """Every file in its turn; one that cannot be checked does not keep the others from it."""
    sources, failed, optional = _all_read(given, asked)
    if not sources and len(failed) == 1:
        raise next(iter(failed.values()))
    started, unread = _started(sources)
    if started or asked.only_launches:
        unread = {
            name: error
            for name, error in unread.items()
            if not (name in optional and isinstance(error, NothingStartedError))
        }
    if asked.only_launches:
        for source in sources:
            if not any(engine in source.text for engine in ENGINES):
                unread.pop(source.name, None)
    found = [_linted(store, source, tuple(launches), asked) for source, launches in started]
    if not found and len(unread) == 1 and not failed:
        raise next(iter(unread.values()))
    return (*found, *(_unread(name, error) for name, error in (failed | unread).items()))


def _all_read(
    given: Sequence[str], asked: Asked
) -> tuple[list[Source], dict[str, K31Error], set[str]]:
    """What can be read, why the rest cannot, and which files need start nothing."""
    sources: list[Source] = []
    failed: dict[str, K31Error] = {}
    optional: set[str] = set()
    for name in dict.fromkeys(given):
        is_folder = name != STANDARD_INPUT and Path(name).is_dir()
        paths = _in_folder(name) if is_folder else [name]
        if is_folder or asked.only_launches:
            optional.update(paths)
        if not paths and not asked.only_launches:
            failed[name] = _no_launch_in(name)
        for path in paths:
            try:
                sources.append(_read(path))
            except K31Error as error:
                failed[path] = error
    return sources, failed, optional


def _in_folder(name: str) -> list[str]:
    """The files of a folder that may be launch files."""
    found = sorted(each for each in Path(name).iterdir() if each.name.endswith(_ENDINGS))
    return [str(each) for each in found[:_MOST_FILES] if each.is_file()]


def _no_launch_in(folder: str) -> InputError:
    return InputError(
        "no launch file in this folder",
        where=folder,
        remedy=f"name the file itself, or a folder with files that end in {', '.join(_ENDINGS)}",
    )


def _started(
    sources: Sequence[Source],
) -> tuple[list[tuple[Source, list[FoundLaunch]]], dict[str, K31Error]]:
    """The launches by the file that they stand in, and the files in which none can be read.

    A script that another file runs is checked as it is run there, and not by itself.
    """
    neighbours = Neighbours(sources)
    texts = {source.name: source for source in sources}
    own: dict[str, list[FoundLaunch]] = {}
    inside: dict[str, list[FoundLaunch]] = {}
    unread: dict[str, K31Error] = {}
    for source in sources:
        neighbours.begin()
        try:
            found = launches_in(source, neighbours)
        except InputError as error:
            unread[_place(error, texts, source)] = error
            continue
        own[source.name] = [each for each in found if each.source is None]
        for each in found:
            if each.source is not None:
                texts.setdefault(each.source.name, each.source)
                inside.setdefault(each.source.name, []).append(each)
    unread = {
        name: error
        for name, error in unread.items()
        if not (isinstance(error, NothingStartedError) and name in neighbours.used)
    }
    names = [name for name in texts if name in inside or name in own]
    return [(texts[name], inside.get(name) or own[name]) for name in names], unread


def _place(error: InputError, texts: Mapping[str, Source], source: Source) -> str:
    """The file that cannot be read: the one given, or a script that it runs."""
    name = error.where.rpartition(":")[0] or error.where
    return name if name in texts else source.name


def _linted(
    store: Store, source: Source, launches: Sequence[FoundLaunch], asked: Asked
) -> LintedFile:
    head, on_ray = source.text[:_HEAD], _RAY.search(source.text) is not None
    expanded = expanded_names(source.text)
    ports = _router_ports(launches)
    linted = tuple(
        lint(
            store,
            replace(
                each,
                head=head,
                on_ray=on_ray,
                has_carriage_returns="\r\n" in source.text,
                expanded=expanded,
                router_ports=ports,
            ),
            asked,
            name=source.name,
        )
        for each in launches
    )
    return _file(source.name, source, linted, asked)


def _file(name: str, source: Source | None, launches: Sequence[Linted], asked: Asked) -> LintedFile:
    text = source.text if source is not None else ""
    kept = without_waived(launches, text, asked.ignore, name=name)
    return LintedFile(
        name=name,
        source=source,
        launches=kept.launches,
        fixed=fixed(source, kept.launches) if source is not None else None,
        waived=kept.waived,
        of_waivers=kept.of_waivers,
    )


def _router_ports(launches: Sequence[FoundLaunch]) -> tuple[int, ...]:
    """The bootstrap ports that a router knows prefill servers by, none where one is not told."""
    texts = [
        port.text
        for each in launches
        for flag, _, port in zip(each.words, each.words[1:], each.words[2:], strict=False)
        if flag.text == "--prefill"
    ]
    is_told = all(text.isascii() and text.isdigit() for text in texts)
    return tuple(dict.fromkeys(int(text[:8]) for text in texts)) if is_told else ()


def _unread(name: str, error: K31Error) -> LintedFile:
    return LintedFile(name=name, source=None, launches=(), fixed=None, failure=error)


def _read(name: str) -> Source:
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputError(
                "standard input is closed", where=name, remedy="pipe a launch file in, or name it"
            )
        return source_of(sys.stdin.buffer.read(MOST_BYTES + 1), name="standard input")
    return read_source(Path(name))


def _own_words(linted: Linted) -> tuple[str, ...]:
    launch = linted.context.launch
    return launch.words[len(launch.wrapper) :]
