"""A measurement as people and pipelines read it."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from k31ctl.bench.events import Event, Finished
from k31ctl.bench.repeats import repeated
from k31ctl.bench.result import StageResult
from k31ctl.core.against import Against
from k31ctl.core.gates import Gate, require_all
from k31ctl.errors import EndpointError, RefusedError
from k31ctl.report.against import against_document, against_lines, require_held
from k31ctl.report.bench_progress import ProgressLines
from k31ctl.report.bench_table import csv_text
from k31ctl.report.bench_text import bench_text, warnings
from k31ctl.report.envelope import envelope, plain
from k31ctl.report.files import write_whole


def show_bench(
    events: Iterator[Event],
    *,
    inputs: Mapping[str, Any],
    csv: Path | None,
    gates: Sequence[Gate],
    as_json: bool,
    hold: "Callable[[Finished], Against] | None",
    plan_notes: Sequence[str],
) -> None:
    """Show a measurement while it runs; the answer goes to standard output, the rest to error.

    A pipeline that asks for JSON is told nothing on the way. ``hold`` holds it against a plan.

    Raises EndpointError where no request was answered, RefusedError where the client did not keep
    up, GateError for the first condition that is not met, and KeyboardInterrupt where it was
    stopped, each after the answer.
    """
    finished = _watched(events, is_told=sys.stderr.isatty() or not as_json)
    if not finished.stages:
        raise KeyboardInterrupt
    best = speaking(finished.stages)
    held = hold(finished) if hold is not None and best.completed else None
    result = bench_result(finished, best)
    if held is not None:
        result["against"] = against_document(held, plan_notes)
    if csv is not None:
        write_whole(csv, csv_text(finished.stages))
    if as_json:
        sys.stdout.write(
            envelope(
                "bench",
                inputs=inputs,
                result=result,
                assumptions=_assumptions(finished),
                warnings=warnings(finished),
            )
        )
    elif csv != Path("-"):
        sys.stdout.write(bench_text(finished, best))
        if held is not None:
            sys.stdout.write("\n" + "\n".join(against_lines(held, plan_notes)) + "\n")
    if finished.is_interrupted:
        raise KeyboardInterrupt
    _require(finished, gates, held)


def _watched(events: Iterator[Event], *, is_told: bool) -> Finished:
    """Follow a run to its end, with a line on standard error for what happens where told."""
    lines = ProgressLines(sys.stderr)
    finished: Finished | None = None
    for event in events:
        if isinstance(event, Finished):
            finished = event
        elif is_told:
            lines.show(event)
    lines.clear()
    assert finished is not None
    return finished


def speaking(stages: Sequence[StageResult]) -> StageResult:
    """Return the stage that speaks for several: the one with the most output tokens a second."""
    return max(stages, key=lambda stage: stage.output_tok_s)


def bench_result(finished: Finished, best: StageResult) -> dict[str, Any]:
    """Return ``result`` of the document."""
    shown: dict[str, Any] = plain(best)
    return shown | {
        "sweep": plain(finished.stages),
        "repeats": plain(repeated(finished.stages)),
        "server": plain(finished.server),
        "record": finished.record,
        "valid": all(stage.client.is_valid for stage in finished.stages),
        "is_interrupted": finished.is_interrupted,
    }


def _assumptions(finished: Finished) -> list[str]:
    return [f"lengths of prompts are known from {finished.tokens_from}"]


def _require(finished: Finished, gates: Sequence[Gate], held: Against | None) -> None:
    where = finished.server.url
    for stage in finished.stages:
        if not stage.completed:
            kind, detail = next(iter(stage.error_details.items()), ("none", "no request was sent"))
            raise EndpointError(
                f"no request was answered at {stage.name}: {kind}: {detail.strip()[:200]}",
                where=where,
                remedy="mend what the server says, or lower the load",
            )
    for gate in gates:
        for index, stage in enumerate(finished.stages):
            named = f"--gate, {stage.name}"
            if held is not None:
                require_held(gate, held.stages[index], plain(stage))
            else:
                require_all([gate], plain(stage), where=named, remedy="see the answer above")
    for stage in finished.stages:
        if not stage.client.is_valid:
            raise RefusedError(
                f"not a valid measurement: {stage.client.reasons[0]}",
                where=f"{stage.name} at {where}",
                remedy="lower the load, give this machine more free cores, or use several of them",
                rule="client-bound",
            )
