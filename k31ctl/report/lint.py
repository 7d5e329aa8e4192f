"""What is wrong with launch files: as text with a diff, as JSON, and in other programs' forms."""

import shlex
import sys
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final

from k31ctl.core.gates import Gate, require_all, require_names
from k31ctl.core.launch_secrets import (
    document_without,
    secrets_of_words,
    stated_secrets,
    without_secrets,
)
from k31ctl.core.rules import Finding, Severity
from k31ctl.core.rules.open_values import known_or
from k31ctl.errors import InputError, K31Error, RefusedError, UsageError
from k31ctl.report.envelope import envelope
from k31ctl.report.files import STANDARD_OUTPUT, write_all
from k31ctl.report.lint_formats import (
    github_lines,
    gitlab_document,
    markdown_text,
    sarif_document,
)
from k31ctl.report.targets import require_apart
from k31ctl.serve.lint import Asked
from k31ctl.serve.lint_files import STANDARD_INPUT, LintedFile
from k31ctl.serve.waive import Waived
from k31ctl.units import counted

_WIDTH: Final = 80
_ORIGINAL: Final = ".orig"
_JSON_FORMS: Final = ("json", "sarif", "gitlab")


def show_lint(
    files: Sequence[LintedFile],
    *,
    asked: Asked,
    output: str,
    markdown: Path | None,
    fix: bool,
    gates: Sequence[Gate],
) -> None:
    """Write every finding in the form asked for; with ``fix`` write the changes first."""
    require_apart(markdown, as_json=output != "text")
    result = lint_result(files)
    require_names(gates, result)
    written = _write_fixes(files) if fix else ()
    secrets = _secrets(files)
    if markdown is not None:
        write_all({markdown: without_secrets(markdown_text(files), secrets)})
    match output:
        case "json":
            text = _document(files, asked, result, gates, written)
        case "sarif":
            text = sarif_document(files)
        case "github":
            text = "".join(f"{line}\n" for line in github_lines(files))
        case "gitlab":
            text = gitlab_document(files)
        case _ if markdown == STANDARD_OUTPUT:
            text = ""
        case _:
            text = "".join(f"{_printable(line)}\n" for line in _text(files, written))
    hide = document_without if output in _JSON_FORMS else without_secrets
    sys.stdout.write(hide(text, secrets))


def _secrets(files: Sequence[LintedFile]) -> frozenset[str]:
    """Keys that stand in the files and commands: what is shown may go into a public log."""
    texts = (each.source.text for each in files if each.source is not None)
    commands = (one.found.texts for each in files for one in each.launches)
    return frozenset().union(*map(stated_secrets, texts), *map(secrets_of_words, commands))


def require_no_errors(files: Sequence[LintedFile], gates: Sequence[Gate]) -> None:
    """Raise what a file could not be checked for, GateError for the first gate that fails,
    RefusedError where errors were found.
    """
    _require_all_checked(files)
    require_all(
        gates,
        lint_result(files),
        where="--gate",
        remedy="mend what is listed, or change the gate",
    )
    bad = [each for each in files if each.count(Severity.ERROR)]
    if bad:
        num = sum(each.count(Severity.ERROR) for each in bad)
        raise RefusedError(
            f"{counted(num, 'error')} in {', '.join(each.name for each in bad[:5])}",
            where=next(f.where for f in bad[0].findings if f.severity is Severity.ERROR),
            remedy="mend what is listed; --fix writes what is certain",
        )


def _require_all_checked(files: Sequence[LintedFile]) -> None:
    unread = [each for each in files if each.failure is not None]
    if not unread:
        return
    first = unread[0].failure
    assert first is not None
    if len(unread) == 1:
        raise first
    raise InputError(
        f"{len(unread)} of {counted(len(files), 'file')} could not be checked",
        where=", ".join(each.name for each in unread[:5]),
        remedy=f"mend or leave them out; the first: {first.what}",
    )


def lint_result(files: Sequence[LintedFile]) -> dict[str, Any]:
    """The names and values that JSON and gates see."""
    findings = [finding_mapping(f) for each in files for f in each.findings]
    counts = {s.value: sum(each.count(s) for each in files) for s in Severity}
    return {
        "errors": counts["error"],
        "warnings": counts["warning"],
        "infos": counts["info"],
        "findings": findings,
        "waived": [
            {**finding_mapping(waived.finding), "reason": waived.reason}
            for each in files
            for waived in each.waived
        ],
        "unread": [_unread(each.name, each.failure) for each in files if each.failure is not None],
        "launches": [_launch(each.name, launch) for each in files for launch in each.launches],
        "corrected": [
            {"file": each.name, "command": list(old), "corrected": list(new)}
            for each in files
            for old, new in each.corrected
        ],
    }


def finding_mapping(finding: Finding) -> dict[str, str]:
    """A finding as every command of this program prints it."""
    return {
        "id": finding.id,
        "severity": finding.severity.value,
        "message": finding.message,
        "remedy": finding.remedy,
        "source": finding.source,
        "where": finding.where,
    }


def _unread(name: str, failure: K31Error) -> dict[str, str]:
    return {
        "file": name,
        "message": failure.what,
        "where": failure.where,
        "remedy": failure.remedy,
    }


def _launch(name: str, linted: Any) -> dict[str, Any]:
    context = linted.context
    return {
        "file": name,
        "line": linted.found.line,
        "kind": context.kind.value,
        "engine": context.name,
        "version": context.version,
        "model": context.model.id if context.model is not None else None,
        "hardware": context.node.id if context.node is not None else None,
        "nodes": context.nodes,
        "gpus": known_or(lambda: context.ranks, None),
    }


def _document(
    files: Sequence[LintedFile],
    asked: Asked,
    result: dict[str, Any],
    gates: Sequence[Gate],
    written: Sequence[str],
) -> str:
    inputs = {
        "files": [each.name for each in files],
        "engine": asked.engine or None,
        "on": asked.hardware or None,
        "nodes": asked.nodes or None,
        "model": asked.model or None,
        "readback": asked.readback or None,
        "ignore": list(asked.ignore),
        "only_launches": asked.only_launches,
        "gates": [gate.text for gate in gates],
    }
    notes = [note for each in files for note in each.notes]
    return envelope(
        "lint",
        inputs=inputs,
        result={**result, "written": list(written)},
        assumptions=list(dict.fromkeys(notes)),
    )


def _write_fixes(files: Sequence[LintedFile]) -> tuple[str, ...]:
    """Write every changed file whole, and what it was beside it; UsageError for a command."""
    texts: dict[Path, str] = {}
    for each in files:
        if each.failure is not None:
            continue
        if each.source is None or each.name == "standard input":
            raise UsageError(
                "only a file can be changed",
                where="--fix",
                remedy=f"name a file, not {STANDARD_INPUT} or a command",
            )
        if each.fixed is not None and each.fixed.text != each.source.text:
            path = Path(each.name)
            texts[path.with_name(path.name + _ORIGINAL)] = each.source.text
            texts[path] = each.fixed.text
    modes = {path: path.stat().st_mode & 0o777 for path in texts if path.exists()}
    write_all(texts)
    for path, mode in modes.items():
        path.chmod(mode)
    return tuple(str(path) for path in texts if not str(path).endswith(_ORIGINAL))


def _text(files: Sequence[LintedFile], written: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for each in files:
        lines += _file_text(each, written)
    return lines if files else ["no file here starts vLLM, SGLang or TokenSpeed"]


def _file_text(file: LintedFile, written: Sequence[str]) -> list[str]:
    if file.failure is not None:
        told = f"{file.failure.where}  not checked  {file.failure.what}"
        return _folded(told, first="", rest="    ")
    lines: list[str] = []
    for finding in file.findings:
        lines += _finding_text(finding)
    for waived in file.waived:
        lines += _waived_text(waived)
    if not file.findings:
        lines.append(f"{file.name}: nothing {'else ' if file.waived else ''}wrong found")
    lines += _diff(file)
    for note in file.notes:
        lines += _folded(note, first="note  ", rest="      ")
    if file.findings:
        lines.append(_conclusion(file, is_written=file.name in written))
    return lines


def _finding_text(finding: Finding) -> list[str]:
    head = f"{finding.where}  {finding.severity.value}  "
    lines = _folded(finding.message, first=head, rest="    ")
    lines += _folded(finding.remedy, first="    do      ", rest="            ")
    lines += _folded(f"{finding.source}  ({finding.id})", first="    source  ", rest="            ")
    return lines


def _waived_text(waived: Waived) -> list[str]:
    found = waived.finding
    told = f"{found.message}  ({found.id}): {waived.reason or 'no reason is given'}"
    return _folded(told, first=f"{found.where}  waived  ", rest="    ")


def _diff(file: LintedFile) -> list[str]:
    """What --fix changes in the file, and the corrected commands that it cannot write."""
    lines: list[str] = []
    if file.source is not None and file.fixed is not None:
        before, after = file.source.text.splitlines(), file.fixed.text.splitlines()
        names = (file.name, f"{file.name} (corrected)")
        found = list(unified_diff(before, after, *names, lineterm="", n=1))
        lines += [line for line in found if not line.startswith("@@")]
    if not lines:
        for _, new in file.corrected:
            lines += ["corrected", *_command_lines(new)]
    return ["", *lines, ""] if lines else []


def _command_lines(words: Sequence[str]) -> list[str]:
    """A command, one flag to a line."""
    lines: list[str] = []
    for word in words:
        quoted = shlex.quote(word)
        starts = word.startswith("-") or not lines
        if starts:
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return [f"  {line} \\" for line in lines[:-1]] + [f"  {line}" for line in lines[-1:]]


def _conclusion(file: LintedFile, *, is_written: bool) -> str:
    parts = [
        counted(file.count(severity), severity.value if severity is not Severity.INFO else "note")
        for severity in Severity
        if file.count(severity)
    ]
    if file.waived:
        parts.append(f"{len(file.waived)} waived")
    text = ", ".join(parts)
    made = file.fixed.num_made if file.fixed is not None else 0
    if is_written:
        return f"{text}; {counted(made, 'change')} written, {file.name}{_ORIGINAL} is as it was"
    if made and file.source is not None and file.name != "standard input":
        return f"{text}; k31ctl lint --fix {file.name} writes {counted(made, 'change')}"
    return text


def _folded(text: str, *, first: str, rest: str) -> list[str]:
    """Lines of at most 80 columns, the first behind one lead and the others behind another."""
    lines: list[str] = []
    for word in " ".join(text.split()).split(" "):
        if lines and len(lines[-1]) + 1 + len(word) <= _WIDTH:
            lines[-1] += f" {word}"
        elif not lines:
            lines.append(first + word)
        else:
            lines.append(rest + word)
    return lines


def _printable(line: str) -> str:
    return "".join(mark if mark.isprintable() or mark == "\t" else "?" for mark in line)
