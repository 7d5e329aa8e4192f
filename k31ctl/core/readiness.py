"""Every check of a machine in one table, and what they say of one machine."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

from k31ctl.core.finding import Finding, Severity
from k31ctl.core.gpu_health_rules import GPU_HEALTH_RULES
from k31ctl.core.gpu_link_rules import GPU_LINK_RULES
from k31ctl.core.gpu_rules import GPU_RULES
from k31ctl.core.host import Host
from k31ctl.core.host_rule import Measured, Need, Rule, Verdict
from k31ctl.core.memory_rules import MEMORY_RULES
from k31ctl.core.network_rules import NETWORK_RULES
from k31ctl.core.rdma_rules import RDMA_RULES
from k31ctl.core.software_rules import SOFTWARE_RULES
from k31ctl.core.weights_rules import WEIGHTS_RULES
from k31ctl.values import frozen

RULES: Final[tuple[Rule, ...]] = (
    *GPU_RULES,
    *GPU_HEALTH_RULES,
    *GPU_LINK_RULES,
    *MEMORY_RULES,
    *WEIGHTS_RULES,
    *RDMA_RULES,
    *NETWORK_RULES,
    *SOFTWARE_RULES,
)


class Status(StrEnum):
    """How a check ended; what it only wants known is a pass."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@frozen
class Check:
    """One check and its end: ``detail`` says what is fine, or why it was skipped."""

    id: str
    group: str
    status: Status
    detail: str
    measured: Mapping[str, Measured]


@frozen
class Readiness:
    """All checks of a machine, and their findings, the worst first."""

    host: Host
    need: Need
    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]

    def count(self, severity: Severity) -> int:
        """How many findings are this bad."""
        return sum(f.severity is severity for f in self.findings)

    @property
    def is_ready(self) -> bool:
        """Whether nothing was found that stops the engine."""
        return not self.count(Severity.ERROR)


def chosen_rules(*, only: Collection[str], skip: Collection[str]) -> tuple[Rule, ...]:
    """The rules that are asked for, in the order of the table."""
    return tuple(r for r in RULES if (not only or r.id in only) and r.id not in skip)


def sections_of(rules: Collection[Rule]) -> frozenset[str]:
    """The sections of a machine that rules look at; what the machine is, is always told."""
    return frozenset({"system"}.union(*((*r.sections, *r.also) for r in rules)))


def judged(host: Host, need: Need, rules: Collection[Rule]) -> Readiness:
    """What the rules say of a machine."""
    checks, findings = [], []
    for rule in rules:
        verdict = _verdict(rule, host, need)
        faults = [
            Finding(
                id=rule.id,
                severity=fault.severity or rule.severity,
                message=fault.message,
                remedy=fault.remedy,
                source=rule.source,
                where=fault.where,
            )
            for fault in verdict.faults
        ]
        findings += faults
        checks.append(
            Check(
                id=rule.id,
                group=rule.group,
                status=_status(verdict, faults),
                detail=verdict.skipped or verdict.good or "; ".join(f.message for f in faults),
                measured=verdict.measured,
            )
        )
    order = list(Severity)
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Readiness(host=host, need=need, checks=tuple(checks), findings=tuple(findings))


def _verdict(rule: Rule, host: Host, need: Need) -> Verdict:
    """The rule's own, or why it cannot look."""
    for section in rule.sections:
        if getattr(host, section) is None:
            missed = host.missing(section)
            return Verdict(skipped=missed.why if missed else f"{section} was not asked for")
    if "gpus" in rule.sections and not (host.gpus and host.gpus.gpus):
        return Verdict(skipped="the driver lists no GPU")
    return rule.judge(host, need)


def _status(verdict: Verdict, faults: list[Finding]) -> Status:
    if verdict.skipped:
        return Status.SKIP
    severities = {fault.severity for fault in faults}
    if Severity.ERROR in severities:
        return Status.FAIL
    return Status.WARN if Severity.WARNING in severities else Status.PASS
