"""Comments of a launch file that waive a finding there, and what is wrong with such a comment.

``# k31ctl: ignore RULE[,RULE] REASON`` behind a line waives what is found in that line; in a line
of its own, what is found in the next line and in all that belongs to it: lines that go on after a
backslash, are indented deeper, or are the items of its YAML list. ``# k31ctl: ignore-file RULE
REASON`` waives it in all the file.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.finding import Finding
from k31ctl.values import frozen

_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#\s*k31ctl:\s*(ignore|ignore-file)(?:\s+(.*))?$")
_SOURCE: Final = "docs/lint.md, Waiving a finding"
UNUSED: Final = "waiver-unused"
UNKNOWN: Final = "waiver-unknown-rule"
WITHOUT_REASON: Final = "waiver-without-reason"
# Id, severity, when it is told, what to do: as a row of docs/rules.md.
WAIVER_RULES: Final = (
    (UNKNOWN, Severity.WARNING, "no rule has the id that a waiver names", "write the rule's id"),
    (WITHOUT_REASON, Severity.WARNING, "a waiver does not say why", "write why behind the id"),
    (
        UNUSED,
        Severity.INFO,
        "a waiver waives nothing",
        "take it out, unless it is for other hardware or another release",
    ),
)


@frozen
class Waiver:
    """One rule that a comment in ``line`` waives, from line ``first`` to ``last``."""

    rule: str
    reason: str
    line: int
    first: int
    last: int

    def covers(self, finding: Finding) -> bool:
        """Whether a finding of the file that the comment stands in is waived."""
        line = int(finding.where.rpartition(":")[2])
        return finding.id == self.rule and self.first <= line <= self.last


def waivers_in(text: str) -> tuple[Waiver, ...]:
    """Return every waiver of a file; one that names no rule has an empty one."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    found: list[Waiver] = []
    for at, line in enumerate(lines):
        comment = _COMMENT.search(line)
        if comment is None:
            continue
        names, reason = [*(comment[2] or "").split(maxsplit=1), "", ""][:2]
        first, last = 1, len(lines)
        if comment[1] == "ignore":
            is_alone = not line[: comment.start()].strip()
            first, last = _block(lines, at + 1) if is_alone else (at + 1, at + 1)
        found += [
            Waiver(rule=name, reason=reason, line=at + 1, first=first, last=last)
            for name in dict.fromkeys(names.split(","))
        ]
    return tuple(found)


def _block(lines: Sequence[str], at: int) -> tuple[int, int]:
    """The first and last line of what begins at an index, behind empty lines and comments."""
    while at < len(lines) and (not lines[at].strip() or lines[at].lstrip().startswith("#")):
        at += 1
    if at == len(lines):
        return at, at
    last = at
    for index in range(at + 1, len(lines)):
        if not lines[index].strip():
            continue
        if not (_is_inside(lines[index], lines[at]) or lines[index - 1].endswith("\\")):
            break
        last = index
    return at + 1, last + 1


def _is_inside(line: str, head: str) -> bool:
    """Whether a line belongs to one above: it is indented deeper, or an item of a YAML list."""
    deeper = _depth(line) - _depth(head)
    return deeper > 0 or (deeper == 0 and _is_item(line) and not _is_item(head))


def _is_item(line: str) -> bool:
    return line.lstrip().startswith("- ")


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def waiver_findings(
    waivers: Sequence[Waiver], used: Sequence[Waiver], *, name: str, known: Iterable[str]
) -> tuple[Finding, ...]:
    """Return what is wrong with the waivers of the file with this name."""
    ids = sorted(known)
    found: list[Finding] = []
    for waiver in waivers:
        where = f"{name}:{waiver.line}"
        if waiver.rule not in ids:
            told = f"no rule is called {waiver.rule[:60]!r}, so nothing is waived"
            found.append(_finding(UNKNOWN, told, where, _near(waiver, ids)))
        elif waiver not in used:
            found.append(_finding(UNUSED, f"{waiver.rule} is waived where it finds nothing", where))
        elif not waiver.reason:
            found.append(
                _finding(WITHOUT_REASON, f"{waiver.rule} is waived without a reason", where)
            )
    return tuple(found)


def _near(waiver: Waiver, ids: Sequence[str]) -> str:
    near = difflib.get_close_matches(waiver.rule, ids, n=1, cutoff=0.4)
    return f"write {near[0]} if that is meant" if near else ""


def _finding(rule: str, message: str, where: str, remedy: str = "") -> Finding:
    severity, usual = next((s, todo) for name, s, _, todo in WAIVER_RULES if name == rule)
    return Finding(
        id=rule,
        severity=severity,
        message=message,
        remedy=remedy or usual,
        source=_SOURCE,
        where=where,
    )
