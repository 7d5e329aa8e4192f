"""The conditions of a measurement as tests: answered, valid, each gate, each judged figure."""

from collections.abc import Mapping, Sequence

from k31ctl.bench.baseline import Regression
from k31ctl.bench.compare import Comparison
from k31ctl.bench.events import Finished
from k31ctl.bench.result import StageResult
from k31ctl.core.gates import Gate, evaluate
from k31ctl.errors import UsageError
from k31ctl.report.bench_diff import diff_cases
from k31ctl.report.junit import Case


def bench_cases(
    finished: Finished,
    gates: Sequence[Gate],
    measured: Sequence[Mapping[str, object]],
    found: Comparison | None,
    regressed: Sequence[Regression] | None,
) -> list[Case]:
    """Return every condition that the run was held to."""
    cases = []
    for stage, names in zip(finished.stages, measured, strict=True):
        held = (gate_case(gate, stage, names) for gate in gates)
        cases += [_answered(stage), _valid(stage), *held]
    return cases + ([] if found is None else list(diff_cases(found, regressed)))


def gate_case(gate: Gate, stage: StageResult, measured: Mapping[str, object]) -> Case:
    """Return a gate as a test of one stage, by the names that it measured."""
    try:
        held = evaluate(gate, measured)
    except UsageError as error:
        return _case(stage, gate.text, failure=error.what, detail=error.remedy)
    text = f"{gate.name} is {held.actual_text}"
    if held.passed:
        return _case(stage, gate.text, failure=None, detail=text)
    return _case(stage, gate.text, failure=f"does not hold: {text}", detail=text)


def _answered(stage: StageResult) -> Case:
    kinds = [f"{kind}: {detail.strip()}" for kind, detail in stage.error_details.items()]
    text = f"{stage.completed:,} answered, {stage.errors:,} failed, in {stage.duration_s:.3g} s"
    return _case(
        stage,
        "requests are answered",
        failure=None if stage.completed else "no request was answered",
        detail="\n".join([text, *kinds]),
        seconds=stage.duration_s,
    )


def _valid(stage: StageResult) -> Case:
    reasons = stage.client.reasons
    return _case(
        stage,
        "the client keeps up",
        failure=reasons[0] if reasons else None,
        detail="\n".join(reasons),
    )


def _case(
    stage: StageResult, name: str, *, failure: str | None, detail: str, seconds: float = 0.0
) -> Case:
    again = f" repeat {stage.repeat + 1}" if stage.repeat else ""
    return Case(
        group=f"k31ctl.bench.{stage.name}{again}",
        name=name,
        seconds=seconds,
        failure=failure,
        skipped=None,
        detail=detail,
    )
