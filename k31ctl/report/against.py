"""A measurement beside its plan: a table, the term that is likely off, names for gates."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from k31ctl.core.against import Against, Held, StageHeld
from k31ctl.core.gates import Gate, require_all
from k31ctl.core.observed import E2E, ITL, OUTPUT, TOTAL, TPOT, TTFT
from k31ctl.errors import GateError, InputError
from k31ctl.report.envelope import envelope
from k31ctl.report.lines import folded, printable
from k31ctl.report.speed_text import number

_MS = 1e3
_NAMES = {
    TTFT: ("TTFT, mean, s", 1.0),
    ITL: ("gap per token, p50, ms", _MS),
    TPOT: ("TPOT, mean, ms", _MS),
    E2E: ("end to end, mean, s", 1.0),
    OUTPUT: ("output tokens/s", 1.0),
    TOTAL: ("all tokens/s", 1.0),
}


def against_lines(found: Against, notes: Sequence[str]) -> list[str]:
    """The table of every stage, then what is likely off."""
    lines = folded(f"against the plan: {found.deployment}", indent="")
    lines.append(
        f"  {'':<25}{'low':>9}{'predicted':>11}{'high':>9}{'measured':>10}{'ratio':>7}  band"
    )
    for stage in found.stages:
        lines += _stage_lines(stage)
    lines += folded(f"likely off: {found.suspicion.text}", indent="  ")
    for note in notes:
        lines += folded(f"beware: {note}", indent="  ")
    return [printable(line).rstrip() for line in lines]


def _stage_lines(stage: StageHeld) -> list[str]:
    seen = stage.observed
    lengths = f"{seen.prompt_tokens:,} in, {seen.output_tokens:,} out"
    head = f"  {seen.name}, {lengths}"
    if not stage.figures:
        return [f"{head}: not held, {seen.why_not}"]
    return [f"{head}, bound by {stage.bound_by}", *map(_row, stage.figures)]


def _row(held: Held) -> str:
    name, factor = _NAMES[held.quantity]
    said = held.predicted
    low, value, high = (number(v * factor) for v in (said.low, said.value, said.high))
    return (
        f"    {name:<23}{low:>9}{value:>11}{high:>9}{number(held.measured * factor):>10}"
        f"{held.ratio:>7.2f}  {'yes' if held.within else 'no'}"
    )


def stage_document(stage: StageHeld) -> dict[str, Any]:
    """One stage by quantity, under the names that gates read."""
    seen = stage.observed
    return {
        "name": seen.name,
        "concurrency": seen.concurrency,
        "rate": seen.rate_per_s,
        "prompt_tokens": seen.prompt_tokens,
        "output_tokens": seen.output_tokens,
        "cached_fraction": seen.cached_fraction,
        "why_not": seen.why_not,
        "bound_by": stage.bound_by,
        **{held.quantity: _held_document(held) for held in stage.figures},
    }


def _held_document(held: Held) -> dict[str, Any]:
    return {
        "predicted": held.predicted.value,
        "low": held.predicted.low,
        "high": held.predicted.high,
        "measured": held.measured,
        "ratio": held.ratio,
        "within": held.within,
    }


def against_document(found: Against, notes: Sequence[str]) -> dict[str, Any]:
    """The whole comparison."""
    return {
        "deployment": found.deployment,
        "stages": [stage_document(stage) for stage in found.stages],
        "likely_off": found.suspicion.likely,
        "likely_off_says": found.suspicion.text,
        "candidates": found.suspicion.candidates,
        "notes": list(notes),
    }


def require_held(gate: Gate, stage: StageHeld, measured: Mapping[str, object]) -> None:
    """Raise GateError where a stage does not meet a gate such as ``against.tpot_s.ratio<=1.2``.

    ``measured`` are the other names that a gate may ask for. A stage that cannot be held does not
    meet a gate on the comparison.
    """
    where = f"--gate, {stage.observed.name}"
    if not stage.figures and (gate.name.startswith("against.") or not measured):
        raise GateError(
            f"{gate.text} cannot be held: {stage.observed.why_not}",
            where=where,
            remedy="see the answer above",
        )
    names = {**measured, "against": stage_document(stage)}
    require_all([gate], names, where=where, remedy="see the answer above")


def show_against(
    found: Against,
    notes: Sequence[str],
    *,
    inputs: Mapping[str, Any],
    gates: Sequence[Gate],
    as_json: bool,
) -> None:
    """Show a comparison.

    Then raises GateError for the first gate that a stage does not meet, and InputError where no
    stage could be held.
    """
    if as_json:
        result = {"against": against_document(found, notes)}
        sys.stdout.write(envelope("bench-compare", inputs=inputs, result=result, warnings=notes))
    else:
        sys.stdout.write("\n".join(against_lines(found, notes)) + "\n")
    for gate in gates:
        for stage in found.stages:
            require_held(gate, stage, {})
    if not any(stage.figures for stage in found.stages):
        first = found.stages[0].observed
        raise InputError(
            f"no stage can be held against the plan: {first.why_not}",
            where=f"{first.run}, {first.name}",
            remedy="measure a closed loop or a rate in which requests are answered",
        )
