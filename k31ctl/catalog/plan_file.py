"""What a plan that was written with ``k31ctl plan --json`` was asked for."""

from pathlib import Path
from typing import Any, Final

from k31ctl.catalog.json_profile import parse_json
from k31ctl.catalog.store import read_text
from k31ctl.errors import InputError, ProfileError
from k31ctl.values import frozen

_SCHEMA: Final = "k31ctl/plan/v1"
_SIZES: Final = ("nodes", "tp", "pp", "dp", "ep", "dcp")


@frozen
class PlanFile:
    """The deployment of a plan; ``engine`` with its version."""

    model: str
    engine: str
    hardware: str
    sizes: dict[str, int]
    context_tokens: int
    max_model_len: int | None


def load_plan_file(path: Path) -> PlanFile:
    """Return the deployment that a plan's document describes; InputError for any other file."""
    try:
        document = parse_json(read_text(path), where=str(path))
    except ProfileError as error:
        raise InputError(error.what, where=error.where, remedy=error.remedy) from None
    if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
        raise _no_plan(path)
    try:
        return _plan_file(document["inputs"])
    except (KeyError, TypeError, ValueError, IndexError):
        raise _no_plan(path) from None


def _plan_file(inputs: Any) -> PlanFile:
    request = inputs["request"]
    longest = request["max_model_len"]
    return PlanFile(
        model=str(inputs["model"]),
        engine=f"{inputs['engine']}@{inputs['engine_version']}",
        hardware=str(inputs["hardware"]),
        sizes={size: int(inputs["layout"][size]) for size in _SIZES},
        context_tokens=int(request["contexts"][0]),
        max_model_len=None if longest is None else int(longest),
    )


def _no_plan(path: Path) -> InputError:
    return InputError(
        "not the document of a plan",
        where=str(path),
        remedy="write one with k31ctl plan ... --json",
    )
