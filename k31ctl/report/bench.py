"""A measurement as people and pipelines read it."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from k31ctl.bench.baseline import Baseline, Regression, regressions
from k31ctl.bench.compare import Comparison, compare
from k31ctl.bench.events import Event, Finished
from k31ctl.bench.past import past_run
from k31ctl.bench.planned import planned_for
from k31ctl.bench.record import made_with
from k31ctl.bench.repeats import repeated
from k31ctl.bench.result import StageResult
from k31ctl.core.against import Against
from k31ctl.core.gates import Gate, require_all
from k31ctl.errors import EndpointError, RefusedError
from k31ctl.report.against import against_document, against_lines, require_held, stage_document
from k31ctl.report.bench_cases import bench_cases
from k31ctl.report.bench_diff import diff_result, require_none
from k31ctl.report.bench_diff_text import diff_text
from k31ctl.report.bench_markdown import bench_markdown
from k31ctl.report.bench_progress import ProgressLines
from k31ctl.report.bench_table import csv_text
from k31ctl.report.bench_text import bench_text, warnings
from k31ctl.report.envelope import envelope, plain
from k31ctl.report.html_bench import bench_page
from k31ctl.report.junit import junit_text
from k31ctl.report.targets import Targets


def show_bench(
    events: Iterator[Event],
    *,
    inputs: Mapping[str, Any],
    targets: Targets,
    gates: Sequence[Gate],
    baseline: Baseline | None,
    as_json: bool,
    hold: "Callable[[Finished], Against] | None",
    plan: Mapping[str, Any] | None,
    plan_notes: Sequence[str],
) -> None:
    """Show a measurement while it runs; the answer goes to standard output, the rest to error.

    A pipeline that asks for JSON is told nothing on the way. ``hold`` holds it against a plan.

    Raises EndpointError where no request was answered, RefusedError where the client did not keep
    up, GateError for the first condition that is not met, and KeyboardInterrupt where it was
    stopped, each after the answer.
    """
    targets.require_one(as_json=as_json)
    finished = _watched(events, is_told=sys.stderr.isatty() or not as_json)
    if not finished.stages:
        raise KeyboardInterrupt
    best = speaking(finished.stages)
    held = hold(finished) if hold is not None and best.completed else None
    found = None if baseline is None else compare(baseline.run, past_run(finished, inputs))
    regressed = _regressed(found, baseline)
    result = bench_result(finished, best) | {
        "baseline": None if found is None else diff_result(found, regressed)
    }
    if held is not None:
        result["against"] = against_document(held, plan_notes)
    measured = _measured(finished, held)
    try:
        targets.write(
            {
                "html": lambda: _page(finished, inputs, plan),
                "csv": lambda: csv_text(finished.stages),
                "markdown": lambda: bench_markdown(finished, gates, measured, found, regressed),
                "junit": lambda: junit_text(
                    "k31ctl bench", bench_cases(finished, gates, measured, found, regressed)
                ),
            }
        )
    finally:  # a file that cannot be written loses nothing of what was measured
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
        elif targets.is_free:
            sys.stdout.write(bench_text(finished, best))
            if found is not None:
                sys.stdout.write("\n" + diff_text(found))
            if held is not None:
                sys.stdout.write("\n" + "\n".join(against_lines(held, plan_notes)) + "\n")
    if finished.is_interrupted:
        raise KeyboardInterrupt
    _require(finished, gates, held)
    if baseline is not None:
        require_none(regressed or (), where=baseline.run.where)


def _page(finished: Finished, inputs: Mapping[str, Any], plan: Mapping[str, Any] | None) -> str:
    document = page_document(finished, inputs)
    return bench_page(document, planned_for(document | {"plan": plan}, None))


def page_document(finished: Finished, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a page shows of a run that has just ended."""
    shown: dict[str, Any] = {
        **made_with(),
        "command": ["k31ctl", *sys.argv[1:]],
        "state": "interrupted" if finished.is_interrupted else "complete",
        "server": plain(finished.server),
        "inputs": dict(inputs),
        "stages": plain(finished.stages),
        "series": plain(finished.series),
        "notes": warnings(finished),
        "tokens_from": finished.tokens_from,
        "record": finished.record,
    }
    return shown


def _measured(finished: Finished, held: Against | None) -> list[dict[str, object]]:
    """Return the names that a gate may ask for, of each stage."""
    stages: list[dict[str, object]] = [plain(stage) for stage in finished.stages]
    if held is None:
        return stages
    return [
        stage | {"against": stage_document(other)}
        for stage, other in zip(stages, held.stages, strict=True)
    ]


def _regressed(
    found: Comparison | None, baseline: Baseline | None
) -> tuple[Regression, ...] | None:
    if found is None or baseline is None or baseline.max_regression is None:
        return None
    return regressions(found, most=baseline.max_regression)


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
