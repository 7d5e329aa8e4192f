"""``k31ctl smoke``: does the model compute here as it should, step by step."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl.cli import embedded_options as embedded
from k31ctl.cli.options import JsonOpt, JunitOpt, ProfilesOpt

CheckpointArg = Annotated[
    Path | None,
    typer.Argument(metavar="[DIR]", help="A checkpoint's folder; a tiny one is made without it."),
]
ModelOpt = Annotated[
    str, typer.Option("--model", metavar="NAME", help="Which tiny one, where no DIR is named.")
]
OnlyOpt = Annotated[
    list[str] | None, typer.Option("--only", metavar="ID", help="Run this step alone.")
]
SkipOpt = Annotated[
    list[str] | None, typer.Option("--skip", metavar="ID", help="Leave this step out.")
]
KeepGoingOpt = Annotated[
    bool, typer.Option("--keep-going", help="Go on behind the first red step.")
]
TimeoutOpt = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, help="When any step counts as hanging."),
]
HashesOpt = Annotated[
    bool | None,
    typer.Option("--hashes/--no-hashes", help="Read digests; by itself below 8 GiB."),
]
SmokeOnOpt = Annotated[
    str, typer.Option("--on", metavar="HARDWARE", help="Whose rates are expected; by GPU name.")
]
TruthOpt = Annotated[
    Path | None, typer.Option("--truth", metavar="FILE", help="A record to hold layers against.")
]
RecordOpt = Annotated[
    Path | None, typer.Option("--record", metavar="FILE", help="Write such a record.")
]


def smoke(
    folder: CheckpointArg = None,
    model: ModelOpt = "kimi-k3.1-pro",
    on: SmokeOnOpt = "",
    device: embedded.DeviceOpt = None,
    dtype: embedded.DtypeOpt = None,
    layers: embedded.LayersOpt = None,
    experts: embedded.ExpertsOpt = None,
    experts_stored: embedded.ExpertsStoredOpt = None,
    experts_ready: embedded.ExpertsReadyOpt = None,
    only: OnlyOpt = None,
    skip: SkipOpt = None,
    timeout: TimeoutOpt = None,
    truth: TruthOpt = None,
    record: RecordOpt = None,
    junit: JunitOpt = None,
    profiles: ProfilesOpt = None,
    hashes: HashesOpt = None,
    *,
    plain: embedded.PlainOpt = False,
    keep_going: KeepGoingOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Run the embedded engine against float64, from one product to the whole service.

    Each step is watched: one that hangs or dies is red. The first red step ends
    it with exit code 4. Without DIR a tiny checkpoint is made and removed.

    k31ctl smoke weights --layers 0-3 --device cuda --json
    """
    from k31ctl.api.machine import smoke_run
    from k31ctl.report.smoke import require_green, show_smoke
    from k31ctl.report.targets import Targets

    targets = Targets(junit=junit)
    targets.require_one(as_json=as_json)
    with smoke_run(
        folder,
        model=model,
        on=on,
        device=device or "",
        dtype=dtype or "",
        layers=layers,
        experts=experts or "",
        experts_stored=experts_stored,
        experts_ready=experts_ready,
        only=only or (),
        skip=skip or (),
        timeout=timeout,
        truth=truth,
        record=record,
        hashes=hashes,
        plain=plain,
        keep_going=keep_going,
        profiles=profiles or (),
    ) as run:
        done = show_smoke(
            run.steps, title=run.title, inputs=run.inputs, as_json=as_json, targets=targets
        )
    require_green(done, title=run.title)
