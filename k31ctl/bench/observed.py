"""Stages of a measurement in the words of the speed model: fresh ones, and those of a record."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from k31ctl.bench.record import SCHEMA as RECORD_SCHEMA
from k31ctl.bench.record import plain
from k31ctl.bench.result import StageResult
from k31ctl.core.observed import E2E, ITL, OUTPUT, TOTAL, TPOT, TTFT, Observed, Sums, observed
from k31ctl.errors import InputError
from k31ctl.outside_json import parsed
from k31ctl.values import frozen

ANSWER_SCHEMA: Final = "k31ctl/bench/v1"
_MOST_BYTES: Final = 64 * 2**20
_RECORD: Final = "run.json"
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

    Raises InputError for anything else.
    """
    file = path / _RECORD if path.is_dir() else path
    document = _document(file)
    where = str(path)
    try:
        match document.get("schema"):
            case str() as schema if schema == RECORD_SCHEMA:
                stages, server = document["stages"], document["server"]
            case str() as schema if schema == ANSWER_SCHEMA:
                stages, server = document["result"]["sweep"], document["result"]["server"]
            case _:
                raise _no_run(where)
        found = tuple(_stage(stage, where) for stage in stages)
        command = document.get("command") or []
        longest = server.get("max_model_len")
        run = Run(
            where=where,
            stages=found,
            plan=document.get("plan"),
            command=" ".join(map(str, command)),
            model=str(server["model"]),
            version=str(server.get("version") or ""),
            max_model_len=longest if isinstance(longest, int) and longest > 0 else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _no_run(where) from None
    if not found:
        raise InputError(
            "holds no stage that ended",
            where=where,
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


def _document(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot be read: {(error.strerror or 'failed').lower()}",
            where=str(file),
            remedy="name the folder of a record, its run.json, or what bench --json printed",
        ) from None
    try:
        found = parsed(content) if len(content) <= _MOST_BYTES else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _no_run(str(file))
    return found


def _no_run(where: str) -> InputError:
    return InputError(
        "not the record of a measurement",
        where=where,
        remedy="name a folder that k31ctl bench URL --out wrote, its run.json, or a document of "
        "bench --json",
    )
