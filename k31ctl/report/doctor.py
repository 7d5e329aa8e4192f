"""The readiness of a machine as text, problems first, as one JSON document, and as Markdown."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from k31ctl.core.finding import Finding, Severity
from k31ctl.core.gates import Gate, require_all, require_names
from k31ctl.core.host import Host
from k31ctl.core.host_rule import listed
from k31ctl.core.readiness import Check, Readiness, Status
from k31ctl.errors import RefusedError
from k31ctl.host.describe import Asked
from k31ctl.report.envelope import envelope
from k31ctl.report.files import STANDARD_OUTPUT, write_whole
from k31ctl.report.lines import folded, printable
from k31ctl.report.targets import require_apart
from k31ctl.units import counted, show_bytes

_TITLES: Final = {
    Severity.ERROR: "errors",
    Severity.WARNING: "warnings",
    Severity.INFO: "to know",
}
_COLUMN: Final = 26


def show_readiness(
    found: Readiness,
    *,
    asked: Asked,
    gates: Sequence[Gate],
    as_json: bool,
    markdown: Path | None,
) -> None:
    """Write the conclusion, every finding with its remedy, and what is fine; gates come first."""
    require_names(gates, readiness_result(found))
    require_apart(markdown, as_json=as_json)
    if markdown is not None:
        write_whole(markdown, _markdown(found))
    if as_json:
        sys.stdout.write(_document(found, asked, gates))
    elif markdown != STANDARD_OUTPUT:
        sys.stdout.write("".join(f"{printable(line)}\n" for line in _text(found, asked)))


def require_ready(found: Readiness, gates: Sequence[Gate]) -> None:
    """Raise RefusedError for errors, then GateError for the first condition not met."""
    errors = found.count(Severity.ERROR)
    if errors:
        names = dict.fromkeys(f.id for f in found.findings if f.severity is Severity.ERROR)
        raise RefusedError(
            f"this machine is not ready: {counted(errors, 'error')}",
            where=", ".join(names),
            remedy="mend what is listed, or leave a check out with --skip ID",
        )
    require_all(
        gates,
        readiness_result(found),
        where="--gate, this machine",
        remedy="mend what is listed, or change the gate",
    )


def readiness_result(found: Readiness) -> dict[str, Any]:
    """The names and values that JSON and gates see."""
    statuses = [check.status for check in found.checks]
    return {
        "ready": found.is_ready,
        "num_errors": found.count(Severity.ERROR),
        "num_warnings": found.count(Severity.WARNING),
        "num_infos": found.count(Severity.INFO),
        "num_checks": {status.value: statuses.count(status) for status in Status},
        "findings": found.findings,
        "checks": found.checks,
        "measured": {c.id.replace("-", "_"): c.measured for c in found.checks if c.measured},
        "host": found.host,
    }


def _document(found: Readiness, asked: Asked, gates: Sequence[Gate]) -> str:
    need = found.need
    inputs = {
        "model": need.model.id,
        "engine": f"{need.engine.engine}@{need.engine.version}",
        "on": need.expected.id if need.expected else None,
        "nodes": need.num_nodes,
        "weights": str(asked.weights) if asked.weights else None,
        "python": asked.interpreter,
        "peers": [f"{host}:{port}" for host, port in asked.peers],
        "gates": [gate.text for gate in gates],
    }
    return envelope("doctor", inputs=inputs, result=readiness_result(found))


def _text(found: Readiness, asked: Asked) -> list[str]:
    lines = [*folded(_conclusion(found), indent=""), *folded(_machine(found.host), indent="")]
    for severity, title in _TITLES.items():
        told = [f for f in found.findings if f.severity is severity]
        if told:
            lines += ["", f"{title}: {len(told):,}"]
        lines += [line for alike in _grouped(told) for line in _finding_lines(alike)]
    fine = [c for c in found.checks if c.status is Status.PASS and not _has(found, c)]
    if fine:
        lines += ["", f"fine: {len(fine):,}"]
    for check in fine:
        lines += _check_lines(check)
    lines += _skipped_lines([c for c in found.checks if c.status is Status.SKIP])
    return [*lines, "", _next(found, asked)]


def _has(found: Readiness, check: Check) -> bool:
    return any(finding.id == check.id for finding in found.findings)


def _conclusion(found: Readiness) -> str:
    need = found.need
    nodes = "" if need.num_nodes == 1 else f" as one of {need.num_nodes} nodes"
    job = f"serve {need.model.name} with {need.engine.name}{nodes}"
    warnings = found.count(Severity.WARNING)
    also = f", {counted(warnings, 'warning')}" if warnings else ""
    if not found.is_ready:
        errors = counted(found.count(Severity.ERROR), "error")
        return f"Not ready to {job}: {errors}{also}."
    if not any(c.status is Status.PASS for c in found.checks):
        return f"Nothing could be checked; whether this machine can {job} is open."
    return f"Ready to {job}, as far as was checked{also}."


def _machine(host: Host) -> str:
    parts = [host.network.hostname if host.network and host.network.hostname else "this machine"]
    if host.system:
        system = host.system
        parts += [system.distribution, f"Linux {system.kernel}" if system.kernel else ""]
        parts.append(f"{system.num_processors:,} processors" if system.num_processors else "")
    if host.memory:
        parts.append(f"{show_bytes(host.memory.usable_bytes)} of memory")
    if host.gpus and host.gpus.gpus:
        first = host.gpus.gpus[0]
        parts.append(f"{len(host.gpus.gpus)} x {first.name}, driver {host.gpus.driver}")
    return ", ".join(part for part in parts if part)


def _grouped(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings that differ in nothing but their place, together."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.id, finding.message, finding.remedy), []).append(finding)
    return list(groups.values())


def _finding_lines(alike: Sequence[Finding]) -> list[str]:
    finding = alike[0]
    places = listed([f.where for f in alike])
    return [
        *folded(f"{finding.id}  at {places}", indent="  "),
        *folded(finding.message, indent="    "),
        *folded(f"do: {finding.remedy}", indent="    "),
        *folded(f"source: {finding.source}", indent="    "),
    ]


def _check_lines(check: Check) -> list[str]:
    first, *rest = folded(check.detail or "fine", indent=" " * _COLUMN)
    return [f"  {check.id:<{_COLUMN - 2}}{first.strip()}", *rest]


def _skipped_lines(checks: Sequence[Check]) -> list[str]:
    """What was not checked, grouped by the reason."""
    reasons: dict[str, list[str]] = {}
    for check in checks:
        reasons.setdefault(check.detail, []).append(check.id)
    lines = ["", f"not checked: {len(checks):,}"] if checks else []
    for reason, ids in reasons.items():
        lines += folded(f"{reason}: {', '.join(ids)}", indent="  ")
    return lines


def _next(found: Readiness, asked: Asked) -> str:
    model = found.need.model.id
    if not found.is_ready:
        return "next: mend the errors from the top, then run this again"
    there = found.host.weights
    if there is None:
        return "next: k31ctl doctor --weights DIR measures the disk; k31ctl plan counts memory"
    if there.present_bytes < found.need.weight_bytes:
        return f"next: k31ctl fetch {model} --to {asked.weights}"
    return f"next: k31ctl verify {asked.weights}; k31ctl plan {model} --on this"


def _markdown(found: Readiness) -> str:
    lines = [f"# {_cell(_conclusion(found))}", "", _cell(_machine(found.host)), ""]
    if found.findings:
        lines += ["| severity | check | what | do | where | source |", "|---|---|---|---|---|---|"]
        lines += [
            f"| {f.severity} | {f.id} | {_cell(f.message)} | {_cell(f.remedy)} "
            f"| {_cell(f.where)} | {_cell(f.source)} |"
            for f in found.findings
        ]
        lines.append("")
    lines += ["| check | status | detail |", "|---|---|---|"]
    lines += [f"| {c.id} | {c.status} | {_cell(c.detail)} |" for c in found.checks]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text that neither ends a cell nor becomes markup."""
    safe = printable(text).replace("&", "&amp;").replace("<", "&lt;")
    return safe.replace("\\", "\\\\").replace("|", "\\|")
