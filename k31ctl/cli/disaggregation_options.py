"""The option that asks for pools of their own for prefill and decode."""

from typing import Annotated

import typer

from k31ctl.core.asked_pools import AskedPools, asked_pools

DisaggregateOpt = Annotated[
    AskedPools | None,
    typer.Option(
        "--disaggregate",
        metavar="POOLS",
        parser=asked_pools,
        help="auto, or prefill=1xTP8,decode=2xTP8xDCP8.",
        rich_help_panel="Starting, and two pools",
    ),
]
