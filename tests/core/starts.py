"""Starts of packaged models on packaged profiles."""

from dataclasses import replace
from typing import Any

from k31ctl.catalog.storage import HUB, load_startup, load_storage
from k31ctl.core.cold_start import ColdStart, cold_start
from k31ctl.core.deployment import deployment
from k31ctl.core.first_token import first_token
from k31ctl.core.hardware import Disk
from k31ctl.core.prediction import case_of
from k31ctl.core.storage import Rate
from tests.core.deployments import STORE, asked, parts


def started(
    model_id: str = "kimi-k3",
    node_id: str = "8x-b300",
    engine: str = "sglang",
    *,
    storage: str = "local-nvme",
    reader: str | None = None,
    warm_caches: bool = False,
    link: Rate | None = None,
    prompt_tokens: int = 8192,
    disks: Disk | str | None = "as profiled",
    **given: Any,
) -> ColdStart:
    """A start with the usual values of the command."""
    made = parts(model_id, node_id, engine)
    if not isinstance(disks, str):
        made = replace(made, node=replace(made.node, disks=disks))
    built = deployment(made, asked(**given))
    case = case_of(made, built)
    return cold_start(
        made,
        built,
        storage=load_storage(STORE, storage),
        reader=reader,
        startup=load_startup(STORE),
        link=link or load_storage(STORE, HUB).read,
        warm_caches=warm_caches,
        first_token_s=first_token(
            case, case.step(made.speed), made.speed, prompt_tokens=prompt_tokens
        ),
    )


def seconds_of(found: ColdStart, part: str) -> tuple[float, float, float]:
    """Low, value and high of one part."""
    (each,) = (p.seconds for p in found.parts if p.part == part)
    return each.low, each.value, each.high


def after_start_s(found: ColdStart) -> tuple[float, float, float]:
    """Low, value and high of what follows the arrival of the files and precedes a request."""
    arrival = ("download", "verification", "copy from the bucket", "first token")
    times = [p.seconds for p in found.parts if p.part not in arrival]
    return (
        sum(t.low for t in times),
        sum(t.value for t in times),
        sum(t.high for t in times),
    )
