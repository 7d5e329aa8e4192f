"""``k31ctl tiny``: a small checkpoint to try things on."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl.cli.options import JsonOpt, ProfilesOpt

NewFolderArg = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="A new or empty folder."),
]
TinyModelOpt = Annotated[
    str, typer.Option("--model", metavar="NAME", help="kimi-k3.1-pro, kimi-k3 or kimi-linear.")
]
SeedOpt = Annotated[
    int, typer.Option("--seed", min=0, help="Another number, other weights; the same, the same.")
]


def tiny(
    folder: NewFolderArg,
    model: TinyModelOpt = "kimi-k3.1-pro",
    seed: SeedOpt = 0,
    profiles: ProfilesOpt = None,
    *,
    as_json: JsonOpt = False,
) -> None:
    """Write a tiny random checkpoint of the real architecture, with a tokenizer."""
    from k31ctl.api.checkpoints import write_tiny
    from k31ctl.report.tiny import show_tiny

    show_tiny(write_tiny(folder, model=model, seed=seed, profiles=profiles or ()), as_json=as_json)
