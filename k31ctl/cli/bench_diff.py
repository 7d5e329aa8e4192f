"""``k31ctl bench diff``: two measurements against each other."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl.cli.bench_options import MaxRegressionOpt, parse_share
from k31ctl.cli.options import CsvOpt, JsonOpt, JunitOpt, MarkdownOpt, said

BeforeArg = Annotated[
    Path, typer.Argument(metavar="BEFORE", help="A record of --out, or a file of --json.")
]
AfterArg = Annotated[Path, typer.Argument(metavar="AFTER", help="The one to hold against it.")]
LeastOpt = Annotated[
    float | None,
    typer.Option(
        "--least",
        metavar="PERCENT",
        parser=said("--least", parse_share),
        help="Changes up to this are too small to matter; 2% if not given.",
        rich_help_panel="How",
    ),
]
BetweenOpt = Annotated[
    float | None,
    typer.Option(
        "--between-runs",
        metavar="PERCENT",
        parser=said("--between-runs", parse_share),
        help="Standard deviation between runs of the same; 0.5% if not given.",
        rich_help_panel="How",
    ),
]
MetricOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Judge and limit this figure, such as ttft_s.p99, instead of the usual ones.",
        rich_help_panel="How",
    ),
]


def diff(
    before: BeforeArg,
    after: AfterArg,
    max_regression: MaxRegressionOpt = None,
    least: LeastOpt = None,
    between_runs: BetweenOpt = None,
    metric: MetricOpt = None,
    csv: CsvOpt = None,
    markdown: MarkdownOpt = None,
    junit: JunitOpt = None,
    *,
    as_json: JsonOpt = False,
) -> None:
    """Say what changed from one run to another, and whether it is beyond noise.

    k31ctl bench diff monday tuesday

    k31ctl bench diff baseline.json run --max-regression 5%
    """
    from k31ctl.api import runs
    from k31ctl.bench.baseline import regressions
    from k31ctl.bench.compare import GATED, judged_metrics
    from k31ctl.report.bench_diff import show_diff
    from k31ctl.report.targets import Targets

    found = runs.diff(before, after, least=least, between_runs=between_runs, metric=metric)
    show_diff(
        found,
        None
        if max_regression is None
        else regressions(
            found, most=max_regression, gated=judged_metrics(metric) if metric else GATED
        ),
        inputs={
            "before": str(before),
            "after": str(after),
            "least": found.least,
            "between_runs": found.between_runs,
            "max_regression": max_regression,
            "metrics": list(judged_metrics(metric)),
        },
        targets=Targets(csv=csv, markdown=markdown, junit=junit, html=None),
        as_json=as_json,
    )
