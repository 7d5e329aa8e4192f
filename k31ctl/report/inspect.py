"""An inspection as text, conclusion first, and as one JSON document."""

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from k31ctl.core.gates import Gate, require_all, require_names
from k31ctl.core.name_patterns import Pattern
from k31ctl.fetch.inspection import NAMES_CAP, Inspection
from k31ctl.report.envelope import envelope
from k31ctl.report.lines import folded, printable
from k31ctl.units import counted, show, show_bytes

_MAX_LINES: Final = 20
_MAX_RANGES: Final = 3
_RANGES: Final = re.compile(r"\{([0-9,-]+)\}")


def show_inspection(
    found: Inspection, *, model_spec: str | None, gates: Sequence[Gate], as_json: bool
) -> None:
    """Write the conclusion and every difference; gates are held against the result first."""
    require_names(gates, inspection_result(found))
    if as_json:
        sys.stdout.write(_document(found, model_spec, gates))
        return
    sys.stdout.write("".join(f"{printable(line)}\n" for line in _text(found)))


def require_gates(found: Inspection, gates: Sequence[Gate]) -> None:
    """Raise GateError for the first condition that the result does not meet."""
    require_all(
        gates,
        inspection_result(found),
        where=f"--gate, {found.folder}",
        remedy="mend the checkpoint, or change the gate",
    )


def inspection_result(found: Inspection) -> dict[str, Any]:
    """The names and values that JSON and gates see; lists of names are cut, counts are not."""
    d = found.difference
    mismatched = [
        {"name": name, "expected": each.expected, "found": each.found}
        for each in d.mismatched
        for name in each.names
    ]
    return {
        "proven": found.is_proven,
        "model": {"id": found.model.id, "architecture": found.model.architecture},
        "files": found.num_files,
        "header_bytes": found.header_bytes,
        "num_tensors": d.num_tensors,
        "total_bytes": d.total_bytes,
        "total_params": d.total_params,
        "expected": {"num_tensors": d.expected_tensors, "total_bytes": d.expected_bytes},
        "missing": d.missing,
        "num_missing": d.num_missing,
        "missing_bytes": d.missing_bytes,
        "missing_patterns": d.missing_patterns,
        "unexpected": d.unexpected,
        "num_unexpected": d.num_unexpected,
        "unexpected_bytes": d.unexpected_bytes,
        "unexpected_patterns": d.unexpected_patterns,
        "mismatched": mismatched[:NAMES_CAP],
        "num_mismatched": d.num_mismatched,
        "mismatched_patterns": [each.pattern for each in d.mismatched],
        "corrupt": found.corrupt[:NAMES_CAP],
        "num_corrupt": len(found.corrupt),
        "num_ignored": d.num_ignored,
    }


def _document(found: Inspection, model_spec: str | None, gates: Sequence[Gate]) -> str:
    inputs = {
        "checkpoint": found.folder,
        "model": model_spec,
        "gates": [gate.text for gate in gates],
    }
    return envelope(
        "inspect",
        inputs=inputs,
        result=inspection_result(found),
        assumptions=found.model.assumptions,
        warnings=found.warnings,
    )


def _text(found: Inspection) -> list[str]:
    d = found.difference
    lines = [
        *folded(_conclusion(found), indent=""),
        f"{found.num_files:,} files, {show_bytes(found.header_bytes)} of headers, "
        f"{show(d.total_params, '')} parameters",
        "",
        f"{'':12}{'expected':>20}{'found':>20}",
        f"{'tensors':12}{d.expected_tensors:>20,}{d.num_tensors:>20,}",
        f"{'bytes':12}{d.expected_bytes:>20,}{d.total_bytes:>20,}",
    ]
    missing = f"missing: {counted(d.num_missing, 'tensor')}, {show_bytes(d.missing_bytes)}"
    lines += _section(missing, _pattern_lines(d.missing_patterns))
    wrong = [
        (each.pattern, f"{each.expected} expected, {each.found} found") for each in d.mismatched
    ]
    lines += _section(f"mismatched: {counted(d.num_mismatched, 'tensor')}", _notes(wrong))
    unexpected = (
        f"unexpected: {counted(d.num_unexpected, 'tensor')}, {show_bytes(d.unexpected_bytes)}"
    )
    lines += _section(unexpected, _pattern_lines(d.unexpected_patterns))
    corrupt = [folded(f"{c.file or 'all files'} {c.problem}", indent="  ") for c in found.corrupt]
    lines += _section(f"corrupt: {counted(len(found.corrupt), 'finding')}", corrupt)
    notes = [*found.warnings]
    if d.num_ignored:
        notes.append(f"{d.num_ignored} rotary inv_freq buffers are there, which no engine reads")
    lines += _section("notes", [folded(note, indent="  ") for note in notes])
    assumed = [folded(f"{a.id}: {a.text}", indent="  ") for a in found.model.assumptions]
    return lines + _section("assumptions", assumed)


def _conclusion(found: Inspection) -> str:
    d, name = found.difference, found.model.name
    if found.is_proven:
        return f"The headers are those of {name}: {d.num_tensors:,} tensors, all as expected."
    parts = [
        (d.num_missing, "missing"),
        (d.num_mismatched, "of another type or shape"),
        (d.num_unexpected, "unexpected"),
    ]
    told = [f"{count:,} {what}" for count, what in parts if count]
    if found.corrupt:
        told.append(f"{counted(len({c.file for c in found.corrupt}), 'file')} with faults")
    return f"These are not the tensors of {name}: {', '.join(told)}."


def _section(title: str, entries: Sequence[list[str]]) -> list[str]:
    """A title and its entries, or nothing where there are none."""
    if not entries:
        return []
    shown = [line for entry in entries[:_MAX_LINES] for line in entry]
    more = len(entries) - _MAX_LINES
    if more <= 0:
        return ["", title, *shown]
    rest = "  and more than --json lists" if len(entries) >= NAMES_CAP else f"  and {more:,} more"
    return ["", title, *shown, f"{rest}; --json has {min(len(entries), NAMES_CAP):,}"]


def _pattern_lines(patterns: Iterable[Pattern]) -> list[list[str]]:
    return _notes([(pattern, "") for pattern in patterns])


def _notes(patterns: Iterable[tuple[Pattern, str]]) -> list[list[str]]:
    """Each pattern with its count before it, and a remark on the line below."""
    found = []
    for pattern, remark in patterns:
        first, *rest = folded(_RANGES.sub(_short, pattern.name), indent=" " * 11)
        found.append([f"{pattern.count:>9,}  {first.strip()}", *rest])
        if remark:
            found[-1] += folded(remark, indent=" " * 11)
    return found


def _short(found: re.Match[str]) -> str:
    """Many ranges as the first and the last of them."""
    parts = found[1].split(",")
    if len(parts) <= _MAX_RANGES:
        return found[0]
    return f"{{{parts[0]},{parts[1]},..,{parts[-1]}}}"
