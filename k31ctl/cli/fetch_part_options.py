"""Options of ``fetch`` that choose a part of a checkpoint."""

from typing import TYPE_CHECKING, Annotated

import typer

from k31ctl.errors import UsageError

if TYPE_CHECKING:
    from k31ctl.fetch.selection import Selection

_PART = "A part"

LayersOpt = Annotated[
    str | None,
    typer.Option(
        "--layers",
        metavar="LAYERS",
        help="Only these layers, such as 0-3,7.",
        rich_help_panel=_PART,
    ),
]
ExpertsOpt = Annotated[
    str | None,
    typer.Option(
        "--experts",
        metavar="EXPERTS",
        help="Of routed experts only these, such as 0-15.",
        rich_help_panel=_PART,
    ),
]
TensorsOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--tensors",
        metavar="GLOB",
        help="Only tensors that match; several: any of them.",
        rich_help_panel=_PART,
    ),
]
RankOpt = Annotated[
    int | None,
    typer.Option(
        "--rank",
        metavar="N",
        min=0,
        help="What this rank of --tp and --pp holds.",
        rich_help_panel=_PART,
    ),
]
RankTpOpt = Annotated[
    int | None,
    typer.Option("--tp", metavar="N", min=1, help="Tensor parallelism.", rich_help_panel=_PART),
]
RankPpOpt = Annotated[
    int | None,
    typer.Option("--pp", metavar="N", min=1, help="Pipeline stages.", rich_help_panel=_PART),
]


def asked_part(
    *,
    layers: str | None,
    experts: str | None,
    tensors: list[str] | None,
    rank: int | None,
    tp: int | None,
    pp: int | None,
    files_are_chosen: bool,
) -> "Selection | None":
    """The part that the options ask for, None for the whole; raises UsageError."""
    if rank is None and (tp is not None or pp is not None):
        raise UsageError(
            "a layout without a rank chooses nothing",
            where="--tp, --pp",
            remedy="say which rank's share is wanted with --rank",
        )
    if layers is None and experts is None and not tensors and rank is None:
        return None
    if files_are_chosen:
        raise UsageError(
            "files and tensors cannot both be chosen",
            where="--include, --exclude",
            remedy="leave them out, or fetch whole files without --layers, --experts, --tensors "
            "and --rank",
        )
    from k31ctl.fetch.selection import Selection, numbers, rank_of

    told = [("--layers", layers), ("--experts", experts)]
    told += [("--tensors", glob) for glob in tensors or ()]
    told += [("--rank", rank), ("--tp", tp), ("--pp", pp)]  # type: ignore[list-item]
    return Selection(
        layers=None if layers is None else numbers(layers, "--layers"),
        experts=None if experts is None else numbers(experts, "--experts"),
        globs=tuple(tensors or ()),
        rank=None if rank is None else rank_of(rank, tp=tp or 1, pp=pp or 1),
        text=" ".join(f"{name} {value}" for name, value in told if value is not None),
    )


def require_hub_and_folder(peers: list[str] | None, target: str) -> None:
    """Raise UsageError where a part shall come from a peer or go into object storage."""
    if not peers and "://" not in target:
        return
    raise UsageError(
        "a part is fetched from a hub, into a folder",
        where=f"--from-peer {peers[0]}" if peers else f"--to {target[:120]}",
        remedy="name a mirror with --endpoint (a node that serves its folder is one), and a folder",
    )
