"""Stages of a load as rows: in the terminal and as CSV."""

import csv
import io
from collections.abc import Sequence

from k31ctl.bench.repeats import metric, metric_names
from k31ctl.bench.result import StageResult

_MS = 1e3


def csv_text(stages: Sequence[StageResult]) -> str:
    """Return a row for each stage, in base units."""
    plain = ("name", "concurrency", "rate", "repeat", "requests", "completed", "errors")
    names = (*plain, "duration_s", *metric_names())
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*names, "valid"])
    for stage in stages:
        values = [getattr(stage, name) for name in plain]
        numbers = [metric(stage, name) for name in names[len(plain) :]]
        cells = ["" if value is None else value for value in (*values, *numbers)]
        writer.writerow([*cells, str(stage.client.is_valid).lower()])
    return stream.getvalue()


def sweep_lines(stages: Sequence[StageResult]) -> list[str]:
    """Return a table of stages, 80 columns wide."""
    lines = [
        "                      requests    output   TTFT, ms        gaps, ms   failed",
        "                            /s     tok/s   mean    p99   mean    p99",
    ]
    for stage in stages:
        mark = "" if stage.client.is_valid else "  not valid"
        ttft, itl = stage.ttft_s, stage.itl_s
        latency = f"{ttft.mean * _MS:7.4g}{ttft.p99 * _MS:7.4g}" if ttft else f"{'-':>7}{'-':>7}"
        gaps = f"{itl.mean * _MS:7.4g}{itl.p99 * _MS:7.4g}" if itl else f"{'-':>7}{'-':>7}"
        lines.append(
            f"  {stage.name:<20}{stage.request_rate:8.4g}{stage.output_tok_s:10,.0f}"
            f"{latency}{gaps}{stage.errors:7,}{mark}"
        )
    return lines
