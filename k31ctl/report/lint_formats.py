"""Findings in other programs' forms: SARIF 2.1.0, GitHub's commands, GitLab's report, Markdown.

What is waived is in Markdown alone: GitHub passes over the suppressions of SARIF and would show it
as open (github/codeql-action#1230).
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from k31ctl import __version__
from k31ctl.core.rules import Finding, Severity
from k31ctl.serve.lint_files import LintedFile

_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_GITHUB: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_GITLAB: Final = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.INFO: "info"}
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_document(files: Sequence[LintedFile]) -> str:
    """The findings as one SARIF log with one run."""
    findings = [finding for each in files for finding in each.findings]
    ids = sorted({finding.id for finding in findings})
    first = {finding.id: finding for finding in reversed(findings)}
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "k31ctl",
                        "semanticVersion": __version__,
                        "rules": [_rule(first[rule_id]) for rule_id in ids],
                    }
                },
                "results": [_result(finding, ids) for finding in findings],
                "invocations": [_invocation(files)],
                "columnKind": "unicodeCodePoints",
            }
        ],
    }
    return json.dumps(log, indent=2, sort_keys=True, ensure_ascii=True) + "\n"


def _invocation(files: Sequence[LintedFile]) -> dict[str, Any]:
    """Whether every file could be checked, and why one could not."""
    failures = [each.failure for each in files if each.failure is not None]
    return {
        "executionSuccessful": not failures,
        "toolExecutionNotifications": [
            {"level": "error", "message": {"text": f"{each.where}: {each.what}; {each.remedy}"}}
            for each in failures
        ],
    }


def _rule(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "shortDescription": {"text": finding.message},
        "help": {"text": f"{finding.remedy}. Source: {finding.source}"},
        "defaultConfiguration": {"level": _LEVELS[finding.severity]},
    }


def _result(finding: Finding, ids: Sequence[str]) -> dict[str, Any]:
    name, line = _place(finding)
    return {
        "ruleId": finding.id,
        "ruleIndex": ids.index(finding.id),
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message}; {finding.remedy}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(name)},
                    "region": {"startLine": line},
                }
            }
        ],
    }


def github_lines(files: Sequence[LintedFile]) -> Iterator[str]:
    """The findings as commands that GitHub turns into annotations."""
    for file in files:
        if file.failure is not None:
            where = f"file={_property(file.name)},title=not checked"
            yield f"::error {where}::{_data(f'{file.failure.what}; {file.failure.remedy}')}"
        for finding in file.findings:
            name, line = _place(finding)
            where = f"file={_property(name)},line={line},title={_property(finding.id)}"
            text = _data(f"{finding.message}; {finding.remedy}")
            yield f"::{_GITHUB[finding.severity]} {where}::{text}"


def gitlab_document(files: Sequence[LintedFile]) -> str:
    """The findings as GitLab's Code Quality report, which every tier of it shows.

    A fingerprint has no line, so that a finding that moves stays the same one, but a number where
    a file has the same finding several times.
    """
    issues: list[dict[str, Any]] = []
    for file in files:
        if file.failure is not None:
            text = f"not checked: {file.failure.what}; {file.failure.remedy}"
            issues.append(_issue(file.name, 1, "not-checked", text, "blocker"))
        seen: Counter[tuple[str, str]] = Counter()
        for f in file.findings:
            name, line = _place(f)
            text = f"{f.message}; {f.remedy}"
            seen[f.id, text] += 1
            issue = _issue(name, line, f.id, text, _GITLAB[f.severity], nth=seen[f.id, text])
            issues.append(issue)
    return json.dumps(issues, indent=2, sort_keys=True, ensure_ascii=True) + "\n"


def _issue(
    name: str, line: int, rule: str, text: str, severity: str, *, nth: int = 1
) -> dict[str, Any]:
    from hashlib import sha256  # noqa: PLC0415  only GitLab needs it

    path = name.removeprefix("./")
    key = "\0".join((path, rule, text, str(nth)))
    return {
        "check_name": rule,
        "description": text,
        "severity": severity,
        "fingerprint": sha256(key.encode("utf-8", "replace")).hexdigest(),
        "location": {"path": path, "lines": {"begin": line}},
    }


def markdown_text(files: Sequence[LintedFile]) -> str:
    """The findings as one table to a file."""
    lines: list[str] = []
    for file in files:
        lines += [f"## {_cell(file.name)}", ""]
        if file.failure is not None:
            lines += [f"Not checked: {_cell(file.failure.what)}.", ""]
            continue
        rows = [
            f"| {_cell(f.where)} | {f.severity.value} | {_cell(f.message)} | {_cell(f.remedy)} "
            f"| `{f.id}` |"
            for f in file.findings
        ] + [
            f"| {_cell(w.finding.where)} | waived | {_cell(w.finding.message)} "
            f"| {_cell(w.reason)} | `{w.finding.id}` |"
            for w in file.waived
        ]
        if not rows:
            lines += ["Nothing wrong found.", ""]
            continue
        lines += ["| where | severity | what | do | rule |", "| --- | --- | --- | --- | --- |"]
        lines += [*rows, ""]
    return "\n".join(lines)


def _place(finding: Finding) -> tuple[str, int]:
    name, _, line = finding.where.rpartition(":")
    return name, int(line)


def _uri(name: str) -> str:
    from urllib.parse import quote  # noqa: PLC0415  only SARIF needs it

    return quote(name)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
