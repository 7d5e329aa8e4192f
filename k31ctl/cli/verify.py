"""``k31ctl verify``: whether what lies on disk is what was published."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl.cli.fetch_options import ConnectionsOpt, EndpointOpt, RetriesOpt
from k31ctl.cli.inspect import AgainstOpt
from k31ctl.cli.options import JsonOpt, ProfilesOpt, gate_option

FolderArg = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="A folder with safetensors files.",
    ),
]
DeepOpt = Annotated[bool, typer.Option("--deep", help="Read every value too.")]
SizesOpt = Annotated[bool, typer.Option("--sizes", help="Compare sizes only; reads no contents.")]
ManifestOpt = Annotated[
    Path | None,
    typer.Option(
        "--manifest", metavar="FILE", help="The record to prove, instead of the folder's own."
    ),
]
JobsOpt = Annotated[
    int, typer.Option("--jobs", min=0, max=256, help="Files read at once; 0 is one per processor.")
]
RepairOpt = Annotated[
    bool, typer.Option("--repair", help="Fetch what is damaged, from where the record says.")
]
AgainOpt = Annotated[bool, typer.Option("--again", help="Read what an earlier run has proven.")]


def verify(
    folder: FolderArg,
    manifest: ManifestOpt = None,
    model: AgainstOpt = None,
    jobs: JobsOpt = 0,
    profiles: ProfilesOpt = None,
    gate: Annotated[list[str] | None, gate_option("num_warnings==0")] = None,
    endpoint: EndpointOpt = None,
    connections: ConnectionsOpt = 8,
    retries: RetriesOpt = 8,
    *,
    sizes: SizesOpt = False,
    deep: DeepOpt = False,
    again: AgainOpt = False,
    repair: RepairOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Prove a checkpoint on disk, offline: sizes, digests, structure, and values if asked.

    k31ctl verify weights --deep

    k31ctl verify weights --repair
    """
    from k31ctl.api import checkpoints
    from k31ctl.core.gates import parse_gate
    from k31ctl.report.verify import require_verified, show_verification
    from k31ctl.report.verify_progress import verify_progress

    gates = [parse_gate(text) for text in gate or ()]
    with verify_progress(silent=as_json) as watch:
        found = checkpoints.verify(
            folder,
            manifest=manifest,
            model=model,
            jobs=jobs,
            sizes=sizes,
            deep=deep,
            again=again,
            repair=repair,
            endpoint=endpoint or (),
            connections=connections,
            retries=retries,
            watch=watch,
            profiles=profiles or (),
        )
    show_verification(found, gates=gates, as_json=as_json)
    require_verified(found, gates)
