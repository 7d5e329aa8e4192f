"""Shows a plan in the form that was asked for, then holds it against its gates."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from k31ctl.core.asked_deployment import AskedDeployment
from k31ctl.core.gates import Gate, evaluate
from k31ctl.core.plan import Plan
from k31ctl.errors import GateError
from k31ctl.report.files import STANDARD_OUTPUT, write_all
from k31ctl.report.plan_document import document, result
from k31ctl.report.plan_table import as_csv, as_markdown
from k31ctl.report.plan_text import as_text
from k31ctl.report.targets import require_apart
from k31ctl.values import frozen

if TYPE_CHECKING:
    from k31ctl.core.further import Further


@frozen
class Origin:
    """What a plan came from: the command that makes its page again, and its deployment."""

    command: str
    asked: AskedDeployment


def show_plan(
    plan: Plan,
    beside: "Further | None",
    *,
    gates: tuple[Gate, ...],
    as_json: bool,
    breakdown: bool,
    money: bool,
    csv: Path | None,
    markdown: Path | None,
    html: Path | None,
    origin: Origin,
) -> None:
    """Print the answer, write the files, and raise GateError where a gate does not hold.

    A file sent to ``-`` takes the place of the text.
    """
    require_apart(csv, markdown, html, as_json=as_json)
    named = result(plan, beside)
    held = tuple(evaluate(gate, named) for gate in gates)
    texts: dict[Path, str] = {}
    makers: tuple[tuple[Path | None, Callable[[], str]], ...] = (
        (csv, lambda: as_csv(plan)),
        (markdown, lambda: as_markdown(plan)),
        (html, lambda: _page(document(plan, held, beside, origin.asked), origin.command)),
    )
    for path, made in makers:
        if path is not None:
            texts[path] = made()
    write_all(texts)
    if as_json:
        sys.stdout.write(document(plan, held, beside, origin.asked))
    elif STANDARD_OUTPUT not in texts:
        sys.stdout.write(as_text(plan, beside, breakdown=breakdown, money=money))
    failed = [gate for gate in held if not gate.passed]
    if failed:
        shown = "; ".join(f"{gate.gate} is not met, it is {gate.actual_text}" for gate in failed)
        raise GateError(
            shown,
            where=f"{plan.parts.model.id} on {plan.layout.nodes} x {plan.parts.node.id}",
            remedy="change the deployment, or the gate",
        )


def _page(text: str, command: str) -> str:
    from k31ctl.report.html import plan_page  # noqa: PLC0415  large, and most answers are no page

    return plan_page(json.loads(text), command=command)
