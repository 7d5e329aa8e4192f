"""The options of ``serve``, and how they become what is asked of a launch."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl import units
from k31ctl.cli.options import said
from k31ctl.errors import UsageError
from k31ctl.serve.asked import Aim, Target

_LAUNCH = "Launch"
_NODES = "Nodes"


ModelArg = Annotated[
    str,
    typer.Argument(
        metavar="[MODEL]", help="A model profile, a config.json or a checkpoint folder."
    ),
]
PlanOpt = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="The JSON of a plan: its model, engine, nodes and layout.",
        rich_help_panel="Deployment",
    ),
]
TargetOpt = Annotated[
    Target, typer.Option("--as", help="What to write.", rich_help_panel="Deployment")
]
GoalOpt = Annotated[
    Aim | None,
    typer.Option("--goal", help="What to tune for.", rich_help_panel="Deployment"),
]
ContextOpt = Annotated[
    int | None,
    typer.Option(
        "--context",
        metavar="TOKENS",
        parser=said("--context", units.parse_tokens),
        help="Usual length of a request.",
        rich_help_panel="Load",
    ),
]
ImageOpt = Annotated[
    str | None,
    typer.Option(
        "--image",
        metavar="IMAGE",
        help="The container image; with Slurm, run in it.",
        rich_help_panel=_LAUNCH,
    ),
]
ModelPathOpt = Annotated[
    str | None,
    typer.Option(
        "--model-path",
        metavar="DIR",
        help="The checkpoint's folder on every node.",
        rich_help_panel=_LAUNCH,
    ),
]
ServedNameOpt = Annotated[
    str | None,
    typer.Option(
        "--served-name",
        metavar="NAME",
        help="The name that clients ask for.",
        rich_help_panel=_LAUNCH,
    ),
]
PortOpt = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65_535, help="Where it answers.", rich_help_panel=_LAUNCH),
]
OverlayOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--overlay",
        metavar="ID",
        help="A published addition to a recipe.",
        rich_help_panel=_LAUNCH,
    ),
]
OutOpt = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write all files here.",
        rich_help_panel="Output",
    ),
]
ExecOpt = Annotated[
    bool,
    typer.Option("--exec", help="Start it here and watch its log.", rich_help_panel="Output"),
]
ForceOpt = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Replace files of the same names; write what lint has errors for.",
        rich_help_panel="Output",
    ),
]
HeadOpt = Annotated[
    str | None,
    typer.Option(
        "--head", metavar="HOST", help="The first node's address.", rich_help_panel=_NODES
    ),
]
HostsOpt = Annotated[
    str | None,
    typer.Option("--hosts", metavar="A,B,...", help="All nodes, in order.", rich_help_panel=_NODES),
]
InterfaceOpt = Annotated[
    str | None,
    typer.Option(
        "--interface",
        metavar="NAME",
        help="Network interface between nodes.",
        rich_help_panel=_NODES,
    ),
]


def said_by_user(ctx: typer.Context) -> frozenset[str]:
    """Return the names of the options that were written, whatever their values."""
    given = ctx.params
    return frozenset(n for n in given if (s := ctx.get_parameter_source(n)) and s.name != "DEFAULT")


def check_exec(
    *, execute: bool, target: Target, nodes: int, pools: bool, out: Path | None, as_json: bool
) -> None:
    """Refuse to start what one process on this machine is not."""
    if execute and (target is not Target.SHELL or nodes > 1 or pools or out or as_json):
        raise UsageError(
            "only a script for one node can be started here",
            where="--exec",
            remedy="use it with --as shell and one node, without --out, --json and --disaggregate",
        )
