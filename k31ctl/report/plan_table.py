"""The cells of a plan as CSV and as Markdown."""

import csv
import io

from k31ctl.core.performance import Performance
from k31ctl.core.plan import Plan
from k31ctl.report.plan_document import ROW_KEYS, row
from k31ctl.report.speed_text import MS, number
from k31ctl.units import show_gib


def as_csv(plan: Plan) -> str:
    """Every cell, every line in bytes; the header has the names of the JSON document."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=ROW_KEYS, lineterminator="\n")
    writer.writeheader()
    for cell, speed in zip(plan.cells, plan.speed.cells, strict=True):
        values = row(plan, cell, speed)
        writer.writerow(values | {"fits": str(values["fits"]).lower()})
    return text.getvalue()


def as_markdown(plan: Plan) -> str:
    """Every cell as a table in GiB, with the deployment and the assumptions around it."""
    parts = plan.parts
    lines = [
        f"# {parts.model.name} on {plan.layout.nodes} x {parts.node.id}",
        "",
        f"{plan.layout.text}, {parts.engine.name}, cache {plan.rows.kv_format}; "
        "sizes are GiB (2^30 bytes) on the tightest GPU.",
        "",
        "| context, tokens | requests | fits | weights | KV cache | KDA state | free | at most "
        "| TTFT, s | TPOT, ms | output tokens/s |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for cell, speed in zip(plan.cells, plan.speed.cells, strict=True):
        stage = plan.stages[cell.stage]
        sizes = (
            stage.line_bytes("weights_bytes"),
            cell.kv_cache_bytes,
            cell.state_bytes,
            cell.free_bytes,
        )
        columns = [
            f"{cell.context_tokens:,}",
            f"{cell.batch:,}",
            "yes" if cell.fits else "no",
            *(show_gib(size) for size in sizes),
            f"{cell.max_requests:,}",
            *(_speed_columns(speed) if speed else ("", "", "")),
        ]
        lines.append(f"| {' | '.join(columns)} |")
    lines += ["", "Fixed on each GPU:", "", "| what | GiB | basis | source |", "|---|---:|---|---|"]
    for line in plan.lines:
        basis = ", ".join(line.bases)
        lines.append(f"| {line.label} | {show_gib(line.num_bytes)} | {basis} | {line.source} |")
    lines += ["", "Assumptions:", ""]
    lines += [f"- {a.text} ({a.basis}; {a.source})" for a in plan.assumptions]
    lines += [f"- Warning: {warning}" for warning in plan.warnings]
    return "\n".join(lines) + "\n"


def _speed_columns(found: Performance) -> tuple[str, str, str]:
    return (
        number(found.ttft_s.value),
        number(found.tpot_s.value * MS),
        number(found.output_tok_s.value),
    )
