"""A measurement that was made before: a record's folder, or the document of ``--json``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from k31ctl.bench.events import Finished
from k31ctl.bench.record import ROWS_FILE, SCHEMA, made_with, plain
from k31ctl.bench.recovered import recovered_stage
from k31ctl.bench.repeats import metric_names
from k31ctl.bench.saved import MOST_BYTES, not_whole, read_saved
from k31ctl.errors import InputError
from k31ctl.outside_json import parsed
from k31ctl.regular_file import read_regular
from k31ctl.values import frozen

FAILED: Final = "failed_fraction"


@frozen
class PastStage:
    """The figures of one stage by their dotted names; ``concurrency`` or ``rate`` is its load."""

    name: str
    repeat: int
    concurrency: int | None
    rate: float | None
    requests: int
    errors: int
    is_valid: bool
    is_whole: bool
    figures: Mapping[str, float]


@frozen
class PastRun:
    """A run: what was asked for and of whom, and its stages.

    ``made_with`` is what else would have to be the same to do it again, ``whole`` the document.
    """

    where: str
    state: str
    inputs: Mapping[str, Any]
    files: tuple[str, ...]
    server: Mapping[str, Any]
    made_with: Mapping[str, Any]
    stages: tuple[PastStage, ...]
    whole: Mapping[str, Any]


def read_run(path: Path) -> PastRun:
    """Read a run; raises InputError where it is none."""
    saved = read_saved(path)
    try:
        return PastRun(
            where=saved.where,
            state=saved.state,
            inputs=dict(saved.whole["inputs"]),
            files=tuple(str(found["sha256"]) for found in saved.whole.get("files") or ()),
            server=saved.server,
            made_with={name: saved.whole[name] for name in made_with() if name in saved.whole},
            stages=tuple(_stage(stage) for stage in saved.stages),
            whole=saved.whole,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise not_whole(saved.where, f"{type(error).__name__.lower()} {error}") from None


def read_page(path: Path) -> dict[str, Any]:
    """Return all that a page shows of a record; raises InputError where it is none.

    Of a run that broke off, the stage that it was in is among them, as far as it is known.
    """
    run = read_run(path)
    is_record = run.whole.get("schema") == SCHEMA and path.is_dir()
    series = [_series(path, n) for n in range(len(run.stages))] if is_record else []
    result = run.whole.get("result")
    shown = dict(run.whole) | {
        "state": run.state,
        "server": run.server,
        "series": [each for each in series if each is not None],
        "record": str(path),
    }
    if isinstance(result, dict):
        shown |= {"stages": result["sweep"], "notes": run.whole.get("warnings")}
    elif is_record and run.state == "running":
        found = _recovered(path, len(run.stages))
        if found is not None:
            shown["stages"] = [*run.whole["stages"], found[0]]
            shown["series"] = [*shown["series"], found[1]]
    return shown


def _recovered(folder: Path, number: int) -> tuple[dict[str, Any], dict[str, Any]] | None:
    try:
        return recovered_stage(folder, number)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"a line of {ROWS_FILE} is not one of ours: {type(error).__name__.lower()}",
            where=str(folder),
            remedy="draw another record",
        ) from None


def _series(folder: Path, number: int) -> dict[str, Any] | None:
    """The curves of a stage, None where the record does not have them whole."""
    try:
        path = folder / f"series-{number}.json"
        found = parsed(read_regular(path, most_bytes=MOST_BYTES))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def past_run(finished: Finished, inputs: Mapping[str, Any]) -> PastRun:
    """Return a run that has just ended as one of the past."""
    return PastRun(
        where=finished.record or "this run",
        state="interrupted" if finished.is_interrupted else "complete",
        inputs=dict(inputs),
        files=(),
        server=plain(finished.server),
        made_with=made_with(),
        stages=tuple(_stage(plain(stage)) for stage in finished.stages),
        whole={},
    )


def _stage(stage: Mapping[str, Any]) -> PastStage:
    requests, errors = int(stage["requests"]), int(stage["errors"])
    figures = {
        name: float(value)
        for name in metric_names()
        if isinstance(value := _named(stage, name.split(".")), int | float)
    }
    if requests:
        figures[FAILED] = errors / requests
    return PastStage(
        name=str(stage["name"]),
        repeat=int(stage["repeat"]),
        concurrency=stage.get("concurrency"),
        rate=stage.get("rate"),
        requests=requests,
        errors=errors,
        is_valid=bool(stage["client"]["is_valid"]),
        is_whole=bool(stage["is_whole"]),
        figures=figures,
    )


def _named(stage: Mapping[str, Any], names: Sequence[str]) -> Any:
    found: Any = stage
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
