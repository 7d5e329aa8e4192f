"""The document of a measurement that was made before: a record's, or what ``--json`` printed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from k31ctl.bench.record import RUN_FILE, SCHEMA
from k31ctl.errors import InputError
from k31ctl.outside_json import parsed
from k31ctl.regular_file import read_regular
from k31ctl.values import frozen

_DOCUMENT: Final = "k31ctl/bench/v1"
MOST_BYTES: Final = 1 << 28
_REMEDY: Final = "name a folder of k31ctl bench --out, its run.json, or a file of bench --json"


@frozen
class Saved:
    """What stands around a measurement's stages, the stages, and how it ended."""

    where: str
    whole: Mapping[str, Any]
    server: Mapping[str, Any]
    stages: tuple[Mapping[str, Any], ...]
    state: str


def read_saved(path: Path) -> Saved:
    """Read a record's folder, its run.json, or a document; raises InputError for anything else."""
    where = str(path)
    whole = _document(path / RUN_FILE if path.is_dir() else path, where)
    schema, result = whole.get("schema"), whole.get("result")
    if schema == SCHEMA:
        holder, stages, state = whole, whole.get("stages"), str(whole.get("state"))
    elif schema == _DOCUMENT and isinstance(result, dict):
        holder, stages = result, result.get("sweep")
        state = "interrupted" if result.get("is_interrupted") else "complete"
    else:
        raise _no_run(f"not a measurement: its schema is {str(schema)[:40]!r}", where)
    server = holder.get("server")
    if not isinstance(server, dict) or not isinstance(stages, list | None):
        raise not_whole(where, "server or stages")
    return Saved(where=where, whole=whole, server=server, stages=tuple(stages or ()), state=state)


def not_whole(where: str, lacks: object) -> InputError:
    """What is raised where a measurement is cut or of other kinds than ours."""
    return _no_run(f"not a whole measurement: {str(lacks)[:60]}", where)


def _no_run(what: str, where: str) -> InputError:
    return InputError(what, where=where, remedy=_REMEDY)


def _document(file: Path, where: str) -> dict[str, Any]:
    try:
        found = parsed(read_regular(file, most_bytes=MOST_BYTES))
    except OSError as error:
        raise _no_run(f"cannot be read: {(error.strerror or 'failed').lower()}", where) from None
    except ValueError:
        raise _no_run("not JSON", where) from None
    if not isinstance(found, dict):
        raise _no_run("not a measurement", where)
    return found
