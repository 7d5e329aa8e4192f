"""``k31ctl inspect``: whether a checkpoint's headers are what its model needs."""

from typing import Annotated

import typer

from k31ctl.cli.fetch_options import EndpointOpt
from k31ctl.cli.options import GateOpt, JsonOpt, ProfilesOpt

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
    gate: GateOpt = None,
    endpoint: EndpointOpt = None,
    *,
    as_json: JsonOpt = False,
) -> None:
    """Read a checkpoint's headers and hold them against what its configuration implies."""
    from k31ctl.catalog import Store, default_folders
    from k31ctl.core.gates import parse_gate
    from k31ctl.fetch.inspection import HUB_MARK, inspect_checkpoint
    from k31ctl.report.inspect import require_gates, show_inspection

    gates = [parse_gate(text) for text in gate or ()]
    store = Store(default_folders(profiles or ()))
    if checkpoint.startswith(HUB_MARK):
        from k31ctl.fetch.remote_inspection import inspect_hub

        found = inspect_hub(store, checkpoint, model_spec=model, endpoints=endpoint or ())
    else:
        found = inspect_checkpoint(store, checkpoint, model_spec=model)
    show_inspection(found, model_spec=model, gates=gates, as_json=as_json)
    found.require_proven()
    require_gates(found, gates)
