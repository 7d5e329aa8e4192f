"""``k31ctl inspect``: whether a checkpoint's headers are what its model needs."""

from typing import Annotated

import typer

from k31ctl.cli.fetch_options import EndpointOpt
from k31ctl.cli.options import JsonOpt, ProfilesOpt, gate_option

CheckpointArg = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT", help="A folder with safetensors files, or hub:OWNER/REPO[@REVISION]."
    ),
]
AgainstOpt = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="A model profile or a config.json, instead of the folder's own config.json.",
    ),
]


def inspect(
    checkpoint: CheckpointArg,
    model: AgainstOpt = None,
    profiles: ProfilesOpt = None,
    gate: Annotated[list[str] | None, gate_option("num_missing==0")] = None,
    endpoint: EndpointOpt = None,
    *,
    as_json: JsonOpt = False,
) -> None:
    """Read a checkpoint's headers and hold them against what its configuration implies."""
    from k31ctl.api import checkpoints
    from k31ctl.core.gates import parse_gate
    from k31ctl.report.inspect import require_gates, show_inspection

    gates = [parse_gate(text) for text in gate or ()]
    found = checkpoints.inspect(
        checkpoint, model=model, endpoint=endpoint or (), profiles=profiles or ()
    )
    show_inspection(found, model_spec=model, gates=gates, as_json=as_json)
    found.require_proven()
    require_gates(found, gates)
