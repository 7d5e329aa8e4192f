"""Findings that are left out because the file or the user says so."""

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from k31ctl.core.rules import Finding
from k31ctl.core.rules.check import RULES
from k31ctl.core.rules.read_rules import READINGS
from k31ctl.core.rules.readback import READBACK_IDS
from k31ctl.core.rules.waivers import Waiver, waiver_findings, waivers_in
from k31ctl.errors import UsageError
from k31ctl.serve.lint import Linted, all_findings
from k31ctl.values import frozen

RULE_IDS: Final = frozenset(
    (*(r.id for r in RULES), *(r.id for r in READINGS.values()), *READBACK_IDS)
)
_BY_OPTION: Final = "--ignore"


@frozen
class Waived:
    """A finding that does not count, and why."""

    finding: Finding
    reason: str


@frozen
class Kept:
    """Launches with the findings that count, those that do not, and those about waivers."""

    launches: tuple[Linted, ...]
    waived: tuple[Waived, ...]
    of_waivers: tuple[Finding, ...]


def require_rules(ignored: Sequence[str]) -> None:
    """Raise UsageError for an id that no rule has."""
    for name in ignored:
        if name not in RULE_IDS:
            near = difflib.get_close_matches(name, sorted(RULE_IDS), n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"no rule is called {name[:60]!r}",
                where=_BY_OPTION,
                remedy=f"{hint}a finding has its rule in brackets, and docs/rules.md has them all",
            )


def without_waived(
    launches: Sequence[Linted], text: str, ignored: Sequence[str], *, name: str
) -> Kept:
    """Return the launches of the file of this name without what its comments or the user waive."""
    waivers = waivers_in(text)
    used: dict[Waiver, None] = {}
    waived: list[Waived] = []
    for finding in all_findings(launches):
        covering = [waiver for waiver in waivers if waiver.covers(finding)]
        used.update(dict.fromkeys(covering))
        if covering or finding.id in ignored:
            reason = next((w.reason for w in covering if w.reason), "" if covering else _BY_OPTION)
            waived.append(Waived(finding=finding, reason=reason))
    gone = {(each.finding.id, each.finding.where) for each in waived}
    kept = [
        replace(each, findings=tuple(f for f in each.findings if (f.id, f.where) not in gone))
        for each in launches
    ]
    told = waiver_findings(waivers, tuple(used), name=name, known=RULE_IDS)
    return Kept(launches=tuple(kept), waived=tuple(waived), of_waivers=told)
