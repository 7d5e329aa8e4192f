"""The options of a search."""

from typing import Annotated

import typer

from k31ctl.api.bounds import MOST_NODES
from k31ctl.core.goal import Goal

SearchOpt = Annotated[
    bool,
    typer.Option(
        "--search",
        help="Walk layouts, engines and hardware for the best.",
        rich_help_panel="Search",
    ),
]
GoalOpt = Annotated[
    Goal,
    typer.Option("--goal", help="What the first recommendation is for.", rich_help_panel="Search"),
]
FleetOpt = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="LOAD",
        help="Such as users=20000,active=0.1,requests_per_hour=6.",
        rich_help_panel="Search",
    ),
]
SystemsOpt = Annotated[
    str | None,
    typer.Option(
        "--systems",
        metavar="HARDWARE,...",
        help="Hardware to choose from, or all; --on.",
        rich_help_panel="Search",
    ),
]
EnginesOpt = Annotated[
    str | None,
    typer.Option(
        "--engines",
        metavar="NAME,...",
        help="What to choose from; else --engine.",
        rich_help_panel="Search",
    ),
]
MaxNodesOpt = Annotated[
    int,
    typer.Option(
        "--max-nodes",
        min=1,
        max=MOST_NODES,
        help="Most nodes for one replica.",
        rich_help_panel="Search",
    ),
]
