"""The speed model's errors: at a terminal, as JSON, and as the page docs/validation.md."""

import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from k31ctl.catalog.measurements import Skipped
from k31ctl.core.speed_parameters import SpeedParameters, tables
from k31ctl.core.validation import (
    LEAST_COVERAGE,
    MOST_CROSS_MEAN,
    MOST_CROSS_WORST,
    MOST_MEAN,
    MOST_WORST,
    Comparison,
    Score,
    Validation,
)
from k31ctl.errors import GateError
from k31ctl.report.envelope import envelope
from k31ctl.report.files import STANDARD_OUTPUT, write_whole
from k31ctl.report.speed_text import number
from k31ctl.report.targets import require_apart

FIGURES = 4


def show_validation(
    found: Validation,
    skipped: Sequence[Skipped],
    *,
    table: str,
    as_json: bool,
    markdown: Path | None,
) -> None:
    """Show every comparison; raises GateError where a target is missed."""
    require_apart(markdown, as_json=as_json)
    if markdown is not None:
        write_whole(markdown, as_markdown(found, skipped))
    if as_json:
        sys.stdout.write(
            envelope(
                "validate",
                inputs={"table": table},
                result=validation_result(found, skipped),
                warnings=found.missed,
            )
        )
    elif markdown != STANDARD_OUTPUT:
        sys.stdout.write(as_text(found, skipped))
    if found.missed:
        raise GateError(
            "; ".join(found.missed),
            where=f"table {table}",
            remedy="see docs/validation.md for what is known to miss, and --fit for a new fit",
        )


def write_parameters(path: Path, parameters: SpeedParameters) -> None:
    """Write the parameters as a profile, every figure with its prior and source."""
    named = {
        table: {
            key: {
                "value": _rounded(entry.value),
                "spread": _rounded(entry.spread),
                "prior": _rounded(entry.prior),
                "prior_spread": _rounded(entry.prior_spread),
                "why": entry.why,
                "source": entry.source,
                "basis": entry.basis.value,
            }
            for key, entry in entries.items()
        }
        for table, entries in tables(parameters).items()
    }
    head = {"id": parameters.id, "name": parameters.name, "checked": parameters.checked}
    note = "# k31ctl validate --fit writes values and spreads; priors and reasons are ours.\n"
    text = yaml.safe_dump(head, sort_keys=False) + yaml.safe_dump(named, sort_keys=False, width=110)
    write_whole(path, note + text)


def _rounded(value: float) -> float:
    """Four figures, in a form that YAML 1.1 reads back as a number."""
    return float(f"{value:.{FIGURES}g}")


def as_text(found: Validation, skipped: Sequence[Skipped]) -> str:
    """A line for each figure, the scores, the orders."""
    lines = [f"{'measurement':<27}{'figure':<22}{'measured':>9}{'model':>9}{'ratio':>7}  in range"]
    for c in found.comparisons:
        mark = "yes" if c.covered else "no"
        left = "" if c.scored else "  not scored"
        cross = "" if c.cross is None else f"  unseen {c.cross.value / c.measured:.2f}"
        lines.append(
            f"{c.measurement.id[:26]:<27}{c.quantity:<22}{number(c.measured):>9}"
            f"{number(c.predicted.value):>9}{1 + c.error:>7.2f}  {mark}{cross}{left}"
        )
    lines += ["", *_scores_text(found)]
    lines += [f"not predicted: {s.id}: {s.why}" for s in skipped]
    return "\n".join(lines) + "\n"


def _scores_text(found: Validation) -> list[str]:
    lines = [_score_line("fitted to all", found.seen)]
    if found.cross is not None:
        lines.append(_score_line("fitted without the source", found.cross))
    for order in found.orders:
        verdict = "right" if order.right else "wrong"
        lines.append(
            f"{order.better} over {order.other}: measured {order.measured_ratio:.2f}, "
            f"model {order.predicted_ratio:.2f}, {verdict}"
        )
    return lines


def _score_line(name: str, score: Score) -> str:
    return (
        f"{name}: {score.count} figures, mean error {score.mean_error:.1%}, worst "
        f"{score.worst_error:.1%}, {score.coverage:.0%} inside low and high"
    )


def validation_result(found: Validation, skipped: Sequence[Skipped]) -> dict[str, object]:
    """The names and values that JSON sees."""
    return {
        "comparisons": [
            {
                "id": c.measurement.id,
                "source": c.measurement.source,
                "quantity": c.quantity,
                "measured": c.measured,
                "predicted": c.predicted.value,
                "low": c.predicted.low,
                "high": c.predicted.high,
                "ratio": 1 + c.error,
                "cross_ratio": None if c.cross_error is None else 1 + c.cross_error,
                "scored": c.scored,
            }
            for c in found.comparisons
        ],
        "seen": found.seen,
        "cross": found.cross,
        "orders": found.orders,
        "skipped": skipped,
        "missed": found.missed,
    }


def as_markdown(found: Validation, skipped: Sequence[Skipped]) -> str:
    """The page docs/validation.md, whole."""
    lines = [
        "# Validation of the speed model",
        "",
        "Written by `k31ctl validate --cross --markdown docs/validation.md`; do not edit. Every",
        "published measurement of Kimi K3 in `profiles/measurements/kimi-k3.yaml`, with what the",
        "model says. *Ratio* is model over measured. *Unseen* is the ratio of a model that was",
        "fitted to all sources but this one. Low and high are meant to hold 90 %.",
        "",
        "No measurement of Kimi K3.1 Pro on data-centre GPUs is public. Its figures are those of",
        "Kimi K3 with the indexer's traffic and arithmetic added.",
        "",
        "## Scores",
        "",
        "| | figures | mean error | worst error | inside low and high |",
        "|---|---:|---:|---:|---:|",
        f"| target, fitted to all | | {MOST_MEAN:.0%} | {MOST_WORST:.0%} | {LEAST_COVERAGE:.0%} |",
        _score_row("fitted to all", found.seen),
    ]
    if found.cross is not None:
        lines += [
            f"| target, without the source | | {MOST_CROSS_MEAN:.0%} | {MOST_CROSS_WORST:.0%} | |",
            _score_row("without the source", found.cross),
        ]
    lines += [
        "",
        "Errors are of TPOT and throughput; the time to the first token is shown and not scored,",
        "since it depends on how a benchmark starts its requests.",
        "",
        "## Order of layouts",
        "",
        "| better, as measured | other | measured ratio | model's ratio |",
        "|---|---|---:|---:|",
    ]
    lines += [
        f"| {o.better} | {o.other} | {o.measured_ratio:.2f} | {o.predicted_ratio:.2f} |"
        for o in found.orders
    ]
    lines += ["", "## Every figure", ""]
    sources = sorted({c.measurement.source for c in found.comparisons})
    for source in sources:
        rows = [c for c in found.comparisons if c.measurement.source == source]
        lines += [f"### {source}", "", *_table(rows), ""]
    lines += ["## What misses, and why", "", *_misses(found)]
    lines += ["", "## Rows that are no run of a deployment", ""]
    lines += [f"- {s.id} ({s.source}): {s.why}" for s in skipped]
    return "\n".join(lines) + "\n"


def _score_row(name: str, score: Score) -> str:
    return (
        f"| {name} | {score.count} | {score.mean_error:.1%} | {score.worst_error:.1%} | "
        f"{score.coverage:.0%} |"
    )


def _table(rows: Sequence[Comparison]) -> list[str]:
    lines = [
        "| measurement | deployment | figure | measured | model | low to high | ratio | unseen |",
        "|---|---|---|---:|---:|---|---:|---:|",
    ]
    for c in rows:
        run = c.measurement
        load = run.workload
        where = f"{run.num_nodes} x {run.hardware}, {run.layout}, {run.engine}"
        asked = f"{load.concurrency} x {load.prompt_tokens}/{load.output_tokens}"
        unseen = "" if c.cross_error is None else f"{1 + c.cross_error:.2f}"
        star = "" if c.scored else " *"
        lines.append(
            f"| {run.id} | {where}, {asked} | {c.quantity}{star} | {number(c.measured)} | "
            f"{number(c.predicted.value)} | {number(c.predicted.low)} to "
            f"{number(c.predicted.high)} | {1 + c.error:.2f} | {unseen} |"
        )
    notes = sorted({(r.measurement.id, r.measurement.note) for r in rows})
    lefts = sorted({(r.measurement.id, r.measurement.left_out) for r in rows})
    told = [f"- {name}: {note}" for name, note in notes if note]
    told += [f"- {name} is not scored: {why}" for name, why in lefts if why]
    return [*lines, "", *told] if told else lines


def _misses(found: Validation) -> list[str]:
    """Every figure outside its interval, or off by more than a quarter, with what is known."""
    lines = []
    for c in found.comparisons:
        if c.scored and (not c.covered or abs(c.error) > MOST_WORST - 0.05):
            why = c.measurement.note or "no reason is known"
            lines.append(f"- {c.measurement.id}, {c.quantity}: ratio {1 + c.error:.2f}; {why}")
    return lines or ["- Nothing scored is outside its interval or off by more than a quarter."]
