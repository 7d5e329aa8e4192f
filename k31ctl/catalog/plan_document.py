"""The document that ``k31ctl plan --json`` wrote, for all who read one."""

from pathlib import Path
from typing import Any, Final

from k31ctl.catalog.json_profile import parse_json
from k31ctl.catalog.store import read_text
from k31ctl.errors import InputError, ProfileError

_SCHEMA: Final = "k31ctl/plan/v1"


def read_plan(
    path: Path, *, remedy: str = "write one with k31ctl plan ... --json"
) -> dict[str, Any]:
    """Return a plan's document; raises InputError, with the remedy, for any other file."""
    try:
        document = parse_json(read_text(path), where=str(path))
    except ProfileError as error:
        raise InputError(error.what, where=error.where, remedy=error.remedy) from None
    if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
        raise InputError("not the document of a plan", where=str(path), remedy=remedy)
    return document
