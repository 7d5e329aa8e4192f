"""A verification as text, conclusion first, and as one JSON document."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from k31ctl.core.gates import Gate, evaluate
from k31ctl.errors import GateError
from k31ctl.fetch.findings import Finding, Level, Severity
from k31ctl.fetch.inspection import NAMES_CAP
from k31ctl.fetch.repair import Repair
from k31ctl.fetch.verify import Verification
from k31ctl.report.envelope import envelope
from k31ctl.report.inspect import inspection_result
from k31ctl.report.lines import folded, printable
from k31ctl.report.provenance import provenance, provenance_lines
from k31ctl.units import show_bytes

_MAX_LINES: Final = 20


def show_verification(found: Verification, *, gates: Sequence[Gate], as_json: bool) -> None:
    """Write the conclusion, what was looked at and every finding; gates are evaluated first."""
    for gate in gates:
        evaluate(gate, verification_result(found))
    if as_json:
        sys.stdout.write(_document(found, gates))
        return
    sys.stdout.write("".join(f"{printable(line)}\n" for line in _text(found)))


def require_verified(found: Verification, gates: Sequence[Gate]) -> None:
    """Raise NotProvenError for damage, then GateError for the first condition not met."""
    found.require_proven()
    for gate in gates:
        held = evaluate(gate, verification_result(found))
        if not held.passed:
            raise GateError(
                f"{gate.text} does not hold: it is {held.actual:,.15g}",
                where=f"--gate, {found.folder}",
                remedy="mend the checkpoint, or change the gate",
            )


def verification_result(found: Verification) -> dict[str, Any]:
    """The names and values that JSON and gates see."""
    counts = Counter(finding.level for finding in found.findings)
    errors = [f for f in found.findings if f.severity is Severity.ERROR]
    result: dict[str, Any] = {
        "proven": found.is_proven,
        "deepest": found.deepest,
        "record": found.record or None,
        "partial": found.is_partial,
        "provenance": None if found.manifest is None else provenance(found.manifest),
        "journal_kept": found.journal_kept,
        "num_findings": len(found.findings),
        "num_errors": len(errors),
        "num_warnings": len(found.findings) - len(errors),
        "findings_by_level": {level.value: counts[level] for level in Level},
        "findings": found.findings[:NAMES_CAP],
        "files_in_record": found.digests.num_files,
        "files_hashed": found.digests.num_hashed,
        "files_reused": found.digests.num_reused,
        "hashed_bytes": found.digests.hashed_bytes,
        "values_tensors": found.num_values_tensors,
        "values_bytes": found.values_bytes,
        "values_files_reused": found.num_values_reused,
        "part_of": found.part_of,
        "repair": _repair(found.repair),
    }
    names = ("num_tensors", "total_bytes", "total_params", "missing", "unexpected", "mismatched")
    held = {} if found.inspection is None else inspection_result(found.inspection)
    result |= {name: held.get(name) for name in names}
    result["corrupt"] = [
        {"file": f.file, "tensor": f.tensor, "start": f.start, "end": f.end, "problem": f.problem}
        for f in errors
        if f.file
    ][:NAMES_CAP]
    return result


def _document(found: Verification, gates: Sequence[Gate]) -> str:
    inputs = {"checkpoint": found.folder, "gates": [gate.text for gate in gates]}
    assumptions = () if found.inspection is None else found.inspection.model.assumptions
    return envelope(
        "verify",
        inputs=inputs,
        result=verification_result(found),
        assumptions=assumptions,
        warnings=found.warnings,
    )


def _text(found: Verification) -> list[str]:
    d = found.digests
    lines = [*folded(_conclusion(found), indent=""), ""]
    record = f"{d.num_files:,} files in {found.record}" if found.record else "no record here"
    if found.manifest is not None:
        for line in provenance_lines(found.manifest):
            lines += folded(line, indent="")
    lines += folded(f"sizes      {record}", indent="")
    if found.deepest is not Level.SIZES:
        lines.append(
            f"digests    {d.num_hashed:,} files read ({show_bytes(d.hashed_bytes)}), "
            f"{d.num_reused:,} proven before"
        )
    if found.inspection is not None:
        i = found.inspection
        lines.append(f"structure  {i.difference.num_tensors:,} tensors in {i.num_files:,} files")
    if found.deepest is Level.VALUES:
        lines.append(
            f"values     {found.num_values_tensors:,} tensors, {show_bytes(found.values_bytes)}"
            + (
                f", {found.num_values_reused:,} files read before"
                if found.num_values_reused
                else ""
            )
        )
    if found.repair is not None:
        lines += _repair_lines(found.repair)
    for severity, title in ((Severity.ERROR, "errors"), (Severity.WARNING, "warnings")):
        told = [f for f in found.findings if f.severity is severity]
        lines += _section(f"{title}: {len(told):,}", told)
    notes = list(found.warnings)
    if found.is_partial:
        notes.append(
            f"this is a part of {found.part_of}; tensors outside it are not missed. Its digests "
            "are of the bytes as they arrived: no published digest covers a part of a file"
        )
    if not found.journal_kept:
        notes.append("the folder cannot be written: a second run reads everything again")
    return lines + (
        ["", "notes", *(x for n in notes for x in folded(n, indent="  "))] if notes else []
    )


def _repair_lines(repair: Repair) -> list[str]:
    refetched, damaged = show_bytes(repair.bytes_refetched), show_bytes(repair.bytes_damaged)
    what = f"{refetched} fetched for {damaged} of damaged files"
    lines = [f"repaired   {len(repair.mended):,} files: {what}"]
    return lines + [
        f"           {each.path}  {show_bytes(each.bytes_refetched)}: {each.how.value}"
        for each in repair.mended[:_MAX_LINES]
    ]


def _repair(repair: Repair | None) -> dict[str, Any] | None:
    if repair is None:
        return None
    return {
        "files": repair.mended,
        "num_files": len(repair.mended),
        "bytes_damaged": repair.bytes_damaged,
        "bytes_refetched": repair.bytes_refetched,
        "failure": None if repair.failure is None else repair.failure.what,
    }


def _conclusion(found: Verification) -> str:
    if not found.is_proven:
        num_errors = sum(f.severity is Severity.ERROR for f in found.findings)
        return f"Not proven: {num_errors:,} errors."
    if not found.record:
        return "No fault found, but nothing here says what the files should contain."
    if found.deepest is Level.SIZES:
        return "All sizes are right; contents were not read."
    return "Proven: every file is what the record says."


def _section(title: str, findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    lines = ["", title]
    for finding in findings[:_MAX_LINES]:
        lines += folded(_line(finding), indent="  ")
    if len(findings) > _MAX_LINES:
        lines.append(f"  and {len(findings) - _MAX_LINES:,} more; --json has them")
    return lines


def _line(finding: Finding) -> str:
    subject = " ".join(part for part in (finding.file, finding.tensor) if part) or "checkpoint"
    place = "" if finding.start is None else f", bytes {finding.start:,} to {finding.end:,}"
    return f"{subject} {finding.problem}{place} ({finding.level.value})"
