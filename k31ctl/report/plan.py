"""Shows a plan in the form that was asked for, then holds it against its gates."""

import json
import sys
from pathlib import Path

from k31ctl.core.gates import Gate, evaluate
from k31ctl.core.plan import Plan
from k31ctl.errors import GateError
from k31ctl.report.files import STANDARD_OUTPUT, write_all
from k31ctl.report.plan_document import document, result
from k31ctl.report.plan_table import as_csv, as_markdown
from k31ctl.report.plan_text import as_text


def show_plan(
    plan: Plan,
    *,
    gates: tuple[Gate, ...],
    as_json: bool,
    breakdown: bool,
    money: bool,
    csv: Path | None,
    markdown: Path | None,
    html: Path | None,
    command: str,
) -> None:
    """Print the answer, write the files, and raise GateError where a gate does not hold.

    A file sent to ``-`` takes the place of the text; ``command`` is what makes the page again.
    """
    named = result(plan)
    held = tuple(evaluate(gate, named) for gate in gates)
    texts = {}
    if csv is not None:
        texts[csv] = as_csv(plan)
    if markdown is not None:
        texts[markdown] = as_markdown(plan)
    if html is not None:
        texts[html] = _page(document(plan, held), command)
    write_all(texts)
    if as_json:
        sys.stdout.write(document(plan, held))
    elif STANDARD_OUTPUT not in (csv, markdown, html):
        sys.stdout.write(as_text(plan, breakdown=breakdown, money=money))
    failed = [gate for gate in held if not gate.passed]
    if failed:
        shown = "; ".join(f"{gate.gate} is not met, it is {gate.told}" for gate in failed)
        raise GateError(
            shown,
            where=f"{plan.parts.model.id} on {plan.layout.nodes} x {plan.parts.node.id}",
            remedy="change the deployment, or the gate",
        )


def _page(text: str, command: str) -> str:
    from k31ctl.report.html import plan_page  # noqa: PLC0415  large, and most answers are no page

    return plan_page(json.loads(text), command=command)
