"""``k31ctl bench report``: the page of a record."""

from pathlib import Path
from typing import Annotated

import typer

RunArg = Annotated[Path, typer.Argument(metavar="RUN", help="A record of --out.")]
PageOpt = Annotated[
    Path,
    typer.Option("--html", metavar="FILE", help="Where the page goes.", rich_help_panel="Output"),
]
PlanOpt = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="A plan's --json, to be drawn into the curves.",
        rich_help_panel="Output",
    ),
]


def report(run: RunArg, html: PageOpt = Path("bench.html"), plan: PlanOpt = None) -> None:
    """Write the page of a record, such as of a run that was interrupted.

    k31ctl bench report run --html run.html --plan plan.json
    """
    from k31ctl.bench.past import read_page
    from k31ctl.bench.planned import planned_for
    from k31ctl.report.bench_report import show_report

    document = read_page(run)
    show_report(document, planned_for(document, plan), html=html)
