"""What the findings change in a file, where exactly what is to be changed stands in it."""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from k31ctl.core.rules import Change, FileKind, Finding
from k31ctl.serve.lint import Linted
from k31ctl.serve.read.found import FoundLaunch, SourceWord
from k31ctl.serve.read.source import Source
from k31ctl.values import frozen

_SCRIPTS: Final = (FileKind.SHELL, FileKind.SBATCH)
_SAFE: Final = re.compile(r"[\w./:=,@%+-]+")
_IN_YAML: Final = (FileKind.COMPOSE, FileKind.KUBERNETES)


@frozen
class Edit:
    """Text of a file that is replaced."""

    start: int
    end: int
    text: str


@frozen
class Fixed:
    """A file's text with every certain change made, and how many those were."""

    text: str
    num_made: int


def corrected_words(linted: Linted) -> tuple[str, ...]:
    """The command with every change of its findings made, as words; variables stand in front."""
    found = linted.found
    words = dict(enumerate(found.texts))
    added: list[str] = []
    variables: dict[str, str | None] = {}
    for change in _changes(linted.findings):
        words.update({at: text for at, text in change.replace.items() if at in words})
        for at in change.remove:
            words.pop(at, None)
        added += [word for word in change.add if word not in added or not word.startswith("-")]
        variables |= change.variables
    call = linted.context.launch
    shown = [text for at, text in words.items() if at >= len(call.wrapper)]
    own = [f"{name}={value}" for name, value in variables.items() if value is not None]
    return (*own, *shown, *added)


def fixed(source: Source, linted: Sequence[Linted]) -> Fixed:
    """Return the file with the changes that are certain; one place is changed once."""
    edits: list[Edit] = []
    made, seen = 0, set[str]()
    for each in linted:
        for finding in each.findings:
            if finding.change is None:
                continue
            key = f"{finding.id} {finding.where} {finding.message}"
            if key in seen:
                continue
            seen.add(key)
            wanted = _edits(finding.change, each.found, source)
            if wanted is None or _clash(wanted, edits):
                continue
            edits += [edit for edit in wanted if edit not in edits]
            made += 1
    text = source.text
    for edit in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    if any(change.unix_lines for each in linted for change in _changes(each.findings)):
        text = text.replace("\r\n", "\n")
    return Fixed(text=text, num_made=made)


def _changes(findings: Iterable[Finding]) -> list[Change]:
    return [finding.change for finding in findings if finding.change is not None]


def _clash(wanted: Sequence[Edit], made: Sequence[Edit]) -> bool:
    """Whether two changes want the same place; two that only insert there do not clash."""
    return any(a.start < b.end and b.start < a.end and a != b for a in wanted for b in made)


def _edits(change: Change, found: FoundLaunch, source: Source) -> list[Edit] | None:
    """The edits of one change, None where one of them is not certain."""
    edits: list[Edit] = []
    for at, text in change.replace.items():
        word = found.words[at]
        if not word.certain or word.start < 0 or (word.nested and not _SAFE.fullmatch(text)):
            return None
        edits.append(Edit(start=word.start, end=word.end, text=_written(text, word, source)))
    for at in change.remove:
        edit = _removed(found.words[at], found, source)
        if edit is None:
            return None
        edits.append(edit)
    if change.add:
        edit = _added(change.add, found, source)
        if edit is None:
            return None
        edits.append(edit)
    for name, value in change.variables.items():
        edit = _variable(name, value, found, source)
        if edit is None:
            return None
        edits.append(edit)
    return edits


def _written(text: str, word: SourceWord, source: Source) -> str:
    """A word as it has to be written in the place of another, in the same quotes."""
    before = source.text[word.start : word.end]
    quote = before[:1]
    if quote in ("'", '"') and before[-1:] == quote:
        if quote not in text and "\\" not in text and "$" not in text:
            return f"{quote}{text}{quote}"
        return f"'{text}'" if "'" not in text else shlex.quote(text)
    return shlex.quote(text)


def _removed(word: SourceWord, found: FoundLaunch, source: Source) -> Edit | None:
    if not word.certain or word.start < 0:
        return None
    start, end = word.start, word.end
    if found.kind in _IN_YAML and not word.nested:
        return _removed_item(start, end, source)
    while start > 0 and source.text[start - 1] in " \t":
        start -= 1
    return Edit(start=start, end=end, text="")


def _removed_item(start: int, end: int, source: Source) -> Edit | None:
    """A whole line of a block list; items of other lists are left to the reader."""
    line_start = source.text.rfind("\n", 0, start) + 1
    line_end = source.text.find("\n", end)
    line_end = len(source.text) if line_end < 0 else line_end + 1
    line = source.text[line_start:line_end]
    if line.strip() == f"- {source.text[start:end]}":
        return Edit(start=line_start, end=line_end, text="")
    return None


def _added(words: Sequence[str], found: FoundLaunch, source: Source) -> Edit | None:
    """The words behind the last one whose place is certain, in the form of what stands there."""
    last = found.words[-1]
    if not last.certain or last.start < 0:
        return None
    if last.nested and not all(map(_SAFE.fullmatch, words)):
        return None
    if last.nested or found.kind not in _IN_YAML:
        return Edit(start=last.end, end=last.end, text=f" {shlex.join(words)}")
    line_start = source.text.rfind("\n", 0, last.start) + 1
    lead = source.text[line_start : last.start]
    if lead.strip() == "-":
        items = "".join(f"\n{lead}{_yaml_item(word)}" for word in words)
        return Edit(start=last.end, end=last.end, text=items)
    opening = source.text.rfind("[", 0, last.start)
    if opening > source.text.rfind("]", 0, last.start) and source.text[last.start] in "\"'":
        items = "".join(f", {_yaml_item(word)}" for word in words)
        return Edit(start=last.end, end=last.end, text=items)
    return None


def _yaml_item(word: str) -> str:
    escaped = word.replace("'", "''")
    return f"'{escaped}'"


def _variable(name: str, value: str | None, found: FoundLaunch, source: Source) -> Edit | None:
    """The edit that sets or unsets a variable of a script."""
    if found.kind not in _SCRIPTS:
        return None
    place = found.environment.get(name)
    if place is None:
        return None if value is None else _exported(name, value, found, source)
    if place.start < 0 or not source.text.startswith(f"{name}=", place.start):
        return None
    if value is not None:
        text = f"{name}={shlex.quote(value)}"
        return Edit(start=place.start, end=place.end, text=text)
    line_start = source.text.rfind("\n", 0, place.start) + 1
    line_end = source.text.find("\n", place.end)
    line_end = len(source.text) if line_end < 0 else line_end + 1
    around = source.text[line_start : place.start] + source.text[place.end : line_end]
    if around.strip() in ("", "export"):
        return Edit(start=line_start, end=line_end, text="")
    start = place.start
    if source.text[start - 1 : start] == " ":
        start -= 1
    return Edit(start=start, end=place.end, text="")


def _exported(name: str, value: str, found: FoundLaunch, source: Source) -> Edit | None:
    """A line that exports a variable, above the line that the command begins in."""
    first = next((word for word in found.words if word.start >= 0), None)
    if first is None:
        return None
    line_start = source.text.rfind("\n", 0, first.start) + 1
    lead = source.text[line_start : first.start]
    if lead.strip():
        return None
    text = f"{lead}export {name}={shlex.quote(value)}\n"
    return Edit(start=line_start, end=line_start, text=text)
