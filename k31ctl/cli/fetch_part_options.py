"""Options of ``fetch`` that choose a part of a checkpoint."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    pass

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
