"""Stages of a measurement in the words of the speed model: fresh ones, and those of a record."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from k31ctl.bench.record import plain
from k31ctl.bench.result import StageResult
from k31ctl.bench.saved import not_whole, read_saved
from k31ctl.core.observed import E2E, ITL, OUTPUT, TOTAL, TPOT, TTFT, Observed, Sums, observed
from k31ctl.errors import InputError
from k31ctl.values import frozen

_SPREADS: Final = ((TTFT, "ttft_s"), (TPOT, "tpot_s"), (E2E, "e2e_s"))


@frozen
class Run:
    """A saved measurement: its stages, the plan it was held against, when it was made and of what.

    ``plan`` is the plan's document, None where it was measured without one; ``max_model_len`` the
    longest context by the server's word, None where it does not tell.
    """

    where: str
    stages: tuple[Observed, ...]
    plan: Mapping[str, Any] | None
    command: str
    model: str
    version: str
    max_model_len: int | None


def observed_stage(stage: StageResult, *, run: str) -> Observed:
    """A stage that was just measured."""
    return _stage(plain(stage), run)


def read_run(path: Path) -> Run:
    """Read a record's folder, its run.json, or what ``bench --json`` printed.

    Raises InputError for anything else, and where no stage ended.
    """
    saved = read_saved(path)
    longest = saved.server.get("max_model_len")
    try:
        run = Run(
            where=saved.where,
            stages=tuple(_stage(stage, saved.where) for stage in saved.stages),
            plan=saved.whole.get("plan"),
            command=" ".join(map(str, saved.whole.get("command") or [])),
            model=str(saved.server["model"]),
            version=str(saved.server.get("version") or ""),
            max_model_len=longest if isinstance(longest, int) and longest > 0 else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise not_whole(saved.where, f"{type(error).__name__.lower()} {error}") from None
    if not run.stages:
        raise InputError(
            "holds no stage that ended",
            where=run.where,
            remedy="let a measurement run to its end",
        )
    return run


def _stage(stage: Mapping[str, Any], where: str) -> Observed:
    measured: dict[str, float | None] = {OUTPUT: stage["output_tok_s"], TOTAL: stage["total_tok_s"]}
    for quantity, name in _SPREADS:
        measured[quantity] = None if stage[name] is None else float(stage[name]["mean"])
    gaps = stage["itl_token_s"]
    measured[ITL] = None if gaps is None else float(gaps["p50"])
    told = stage.get("server_metrics")
    return observed(
        run=where,
        name=str(stage["name"]),
        concurrency=stage["concurrency"],
        rate_per_s=stage["rate"],
        requests=int(stage["requests"]),
        completed=int(stage["completed"]),
        tokens=Sums(
            prompt=int(stage["tokens"]["prompt"]),
            cached=stage["tokens"]["cached"],
            output=int(stage["tokens"]["output"]),
        ),
        measured=measured,
        queue_s=None if told is None else told["queue_mean_s"],
        is_valid=bool(stage["client"]["is_valid"]),
    )
