"""The one JSON document that every ``--json`` prints."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

from k31ctl import __version__


def envelope(
    command: str,
    *,
    inputs: object,
    result: object,
    assumptions: Sequence[object] = (),
    warnings: Sequence[object] = (),
) -> str:
    """Return the document of a command as text: sorted keys, two spaces, one final newline.

    It is ASCII, so that every stream takes it and every locale gives the same bytes.
    """
    document = {
        "schema": f"k31ctl/{command}/v1",
        "version": __version__,
        "inputs": inputs,
        "result": result,
        "assumptions": assumptions,
        "warnings": warnings,
    }
    text = json.dumps(plain(document), indent=2, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return text + "\n"


def plain(value: object) -> Any:
    """Return ``value`` as JSON has it: mappings, lists, text, numbers, true, false and null."""
    match value:
        case Mapping():
            return {str(plain(key)): plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [plain(entry) for entry in value]
        case set() | frozenset():
            return sorted(plain(entry) for entry in value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {entry.name: plain(getattr(value, entry.name)) for entry in fields(value)}
        case _:
            return _scalar(value)


def _scalar(value: object) -> str | int | float | None:
    match value:
        case Enum():
            return _scalar(value.value)
        case None | bool() | int():
            return value
        case str():
            # Half a surrogate pair, from a file's content or name, is text to no strict reader.
            return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
        case float():
            return _finite(value)
        case date() | Path():
            return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} has no form in JSON")
    return value
