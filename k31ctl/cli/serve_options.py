"""The options of ``serve``, and how they become what is asked of a launch."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl import units
from k31ctl.cli.options import said
from k31ctl.errors import UsageError
from k31ctl.serve.asked import Aim, Place, Target

_LAUNCH = "Launch"
_NODES = "Nodes"


def folder_named(text: str) -> Path:
    """Return the folder of a name; ValueError for an empty one, which is no folder."""
    if not text.strip():
        raise ValueError("an empty name is no folder; write . for this one")
    return Path(text)


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
        parser=said("--out", folder_named),
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


def asked_place(head: str | None, hosts: str | None, interface: str | None) -> Place:
    """Return what is known of the nodes; raises UsageError for what is no name."""
    names = tuple(name.strip() for name in hosts.split(",")) if hosts else ()
    if len(set(names)) != len(names):
        raise UsageError(
            f"{hosts!r} names a host twice",
            where="--hosts",
            remedy="name each node once, in the order of the nodes",
        )
    if names and not all(names):
        raise UsageError(
            f"{hosts!r} holds an empty name",
            where="--hosts",
            remedy="name the nodes with a comma between, such as node0,node1",
        )
    for where, text in (("--head", head), ("--interface", interface), ("--hosts", hosts)):
        if text is not None and (not text.isprintable() or " " in text or text.startswith("-")):
            raise UsageError(
                f"{text[:60]!r} is not a name", where=where, remedy="use letters, digits, . : and -"
            )
    if head is not None and names and head != names[0]:
        raise UsageError(
            f"{head} is not the first of the hosts",
            where="--head",
            remedy="leave it out: the first of --hosts is the head",
        )
    return Place(head=head, hosts=names, interface=interface)


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


def check_alone(
    *, draft: str | None, draft_tokens: int | None, plan: Path | None, engine: str
) -> None:
    """Refuse options that say nothing by themselves."""
    if draft_tokens is not None and draft is None and plan is None:
        raise UsageError(
            "there is no draft model whose tokens it could count",
            where="--draft-tokens",
            remedy="add --draft NAME; k31ctl profiles list drafts shows them",
        )
    if engine.endswith("@"):
        raise UsageError(
            f"{engine[:40]!r} names no version",
            where="--engine",
            remedy=f"write {engine[:40].rstrip('@')}, or a version after the @",
        )


def check_tensorrt(*, execute: bool, pools: bool) -> None:
    """Refuse what is not written for TensorRT-LLM."""
    if execute or pools:
        raise UsageError(
            "TensorRT-LLM is neither started here nor split into pools",
            where="--exec, --disaggregate",
            remedy="leave them out, or use another --engine",
        )


def checked_name(flag: str, text: str | None) -> str | None:
    """Refuse text that an engine would read as a flag, or that is empty."""
    if text is not None and (not text or text.startswith("-") or "\0" in text):
        raise UsageError(
            f"{text[:60]!r} reads as a flag" if text else "it is empty",
            where=flag,
            remedy="begin it with a letter, a digit or a slash",
        )
    return text
