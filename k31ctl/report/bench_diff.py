"""Two runs against each other: at a terminal, as JSON, CSV, Markdown and JUnit."""

import csv as csv_module
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from k31ctl.bench.baseline import Regression
from k31ctl.bench.compare import ALPHA, Compared, ComparedStage, Comparison, Verdict
from k31ctl.errors import GateError
from k31ctl.report.bench_diff_text import (
    WORDS,
    answer,
    change_text,
    diff_text,
    figure_name,
    how,
    interval_text,
    judged,
    shown,
    value,
)
from k31ctl.report.envelope import envelope, plain
from k31ctl.report.junit import Case, junit_text
from k31ctl.report.targets import Targets
from k31ctl.units import percent


def show_diff(
    found: Comparison,
    regressions: Sequence[Regression] | None,
    *,
    inputs: Mapping[str, Any],
    targets: Targets,
    as_json: bool,
) -> None:
    """Show a comparison; raises GateError for what is worse than allowed, after the answer."""
    targets.require_one(as_json=as_json)
    is_free = targets.write(
        {
            "csv": lambda: diff_csv(found),
            "markdown": lambda: diff_markdown(found, regressions),
            "junit": lambda: junit_text("k31ctl bench diff", list(diff_cases(found, regressions))),
        }
    )
    if as_json:
        sys.stdout.write(
            envelope(
                "bench-diff",
                inputs=inputs,
                result=diff_result(found, regressions),
                assumptions=[how(found)],
                warnings=found.notes,
            )
        )
    elif is_free:
        sys.stdout.write(diff_text(found))
    require_none(regressions or (), where=found.before)


def require_none(regressions: Sequence[Regression], *, where: str) -> None:
    """Raise GateError for the first regression."""
    for regression in regressions:
        raise GateError(
            regression_text(regression),
            where=f"{regression.stage} against {where}",
            remedy="see the answer above, or measure a new baseline if this is meant",
        )


def regression_text(found: Regression) -> str:
    """Return what is worse than allowed, in a sentence."""
    change, name = found.compared.change, found.compared.metric
    what = figure_name(name).partition(",")[0]
    return (
        f"{what} changed by {change_text(name, change.change)} (95 % interval "
        f"{interval_text(change)}), for the worse, beyond noise and the "
        f"{percent(found.allowed)} allowed"
    )


def diff_result(found: Comparison, regressions: Sequence[Regression] | None) -> dict[str, Any]:
    """Return ``result`` of the document."""
    return {
        "worse": len(found.worse),
        "better": len(found.better),
        "before": found.before,
        "after": found.after,
        "settings": plain(found.settings),
        "stages": [
            {
                "name": stage.name,
                "num_before": stage.num_before,
                "num_after": stage.num_after,
                "metrics": [_metric(metric) for metric in stage.metrics],
            }
            for stage in found.stages
        ],
        "alpha": ALPHA,
        "least": found.least,
        "between_runs": found.between_runs,
        "regressions": None
        if regressions is None
        else [
            {"stage": each.stage, "metric": each.compared.metric, "allowed": each.allowed}
            for each in regressions
        ],
    }


def _metric(metric: Compared) -> dict[str, Any]:
    change = metric.change
    return {
        "name": metric.metric,
        "before": change.before,
        "after": change.after,
        "change": change.change if abs(change.change) != float("inf") else None,
        "low": change.low,
        "high": change.high,
        "is_judged": metric.is_judged,
        "p": metric.p,
        "detectable": metric.detectable,
        "verdict": None if metric.verdict is None else metric.verdict.name.lower(),
    }


def diff_csv(found: Comparison) -> str:
    """Return a row for each metric of each stage, in base units."""
    names = ("before", "after", "change", "low", "high", "p", "detectable", "verdict")
    stream = io.StringIO()
    writer = csv_module.writer(stream, lineterminator="\n")
    writer.writerow(["stage", "num_before", "num_after", "metric", *names])
    for stage in found.stages:
        for metric in stage.metrics:
            row = _metric(metric)
            cells = ["" if row[name] is None else row[name] for name in names]
            writer.writerow([stage.name, stage.num_before, stage.num_after, metric.metric, *cells])
    return stream.getvalue()


def diff_markdown(found: Comparison, regressions: Sequence[Regression] | None) -> str:
    """Return a summary as GitHub shows it under a job."""
    lines = ["## Benchmark against its baseline", ""]
    if regressions is not None:
        verdict = "**Failed.**" if regressions else "**Passed.**"
        lines += [f"{verdict} {cell(answer(found))}", ""]
        lines += [f"- {cell(each.stage)}: {cell(regression_text(each))}" for each in regressions]
        lines += [""] if regressions else []
    else:
        lines += [cell(answer(found)), ""]
    for stage in found.stages:
        lines += [*_stage_table(stage), ""]
    if found.settings:
        lines += ["| not the same | before | after |", "|---|---|---|"]
        lines += [
            f"| {cell(s.name)}{' (another load)' if s.is_load else ''} | {cell(value(s.before))} "
            f"| {cell(value(s.after))} |"
            for s in found.settings
        ]
        lines.append("")
    lines += [f"> {cell(note)}\n" for note in found.notes]
    lines += [f"<sub>{cell(how(found))}</sub>"]
    return "\n".join(lines) + "\n"


def _stage_table(stage: ComparedStage) -> Iterator[str]:
    yield f"### {cell(stage.name)}, {stage.num_before} against {stage.num_after} repeats"
    yield ""
    yield "| figure | before | after | change | 95 % interval | verdict |"
    yield "|---|---:|---:|---:|---:|---|"
    for metric in judged(stage):
        change, name = metric.change, metric.metric
        assert metric.verdict is not None
        word = WORDS[metric.verdict]
        loud = f"**{word.lower()}**" if metric.verdict in (Verdict.WORSE, Verdict.BETTER) else word
        yield (
            f"| {figure_name(name)} | {shown(name, change.before)} | {shown(name, change.after)} "
            f"| {change_text(name, change.change)} | {interval_text(change)} | {loud} |"
        )


def diff_cases(found: Comparison, regressions: Sequence[Regression] | None) -> Iterator[Case]:
    """Return every judged figure as a test; it fails where it is worse than allowed."""
    failed = {(each.stage, each.compared.metric): each for each in regressions or ()}
    for stage in found.stages:
        for metric in judged(stage):
            each = failed.get((stage.name, metric.metric))
            unknown = metric.verdict is Verdict.UNKNOWN
            yield Case(
                group=f"k31ctl.bench.{stage.name}",
                name=f"{metric.metric} against the baseline",
                seconds=0.0,
                failure=None if each is None else regression_text(each),
                skipped="its noise is not known without repeats" if unknown else None,
                detail=_detail(metric),
            )


def _detail(metric: Compared) -> str:
    change, name = metric.change, metric.metric
    assert metric.verdict is not None
    return (
        f"{figure_name(name)}: {shown(name, change.before)} before, {shown(name, change.after)} "
        f"after, {change_text(name, change.change)} ({interval_text(change)}): "
        f"{metric.verdict.value}"
    )


def cell(text: str) -> str:
    """Return a text that can stand in a table of Markdown."""
    flat = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    flat = flat.replace("<", "&lt;").replace("`", "\\`").replace("[", "\\[")
    return "".join(mark if mark.isprintable() else "?" for mark in flat)
