"""A catalog of flags as text: JSON with one line for each flag, variable and object."""

import json
from collections.abc import Mapping
from typing import Any

_INDENT = " "


def catalog_text(raw: Mapping[str, Any]) -> str:
    """Return the text of a catalog file, the same for the same content.

    Two levels are broken into lines, and three where an entry holds flags: a new release is then
    a readable difference of lines.
    """
    lines = [f"{_INDENT}{json.dumps(key)}: {_entry(key, value)}" for key, value in raw.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _entry(key: str, value: object) -> str:
    deeper = _INDENT * 2
    match value:
        case list() if value and (key == "flags" or not all(isinstance(v, str) for v in value)):
            return "[\n" + ",\n".join(f"{deeper}{_plain(v)}" for v in value) + f"\n{_INDENT}]"
        case dict() if value:
            rows = [f"{deeper}{json.dumps(name)}: {_inner(name, v)}" for name, v in value.items()]
            return "{\n" + ",\n".join(rows) + f"\n{_INDENT}}}"
        case _:
            return _plain(value)


def _inner(name: str, value: object) -> str:
    deeper = _INDENT * 3
    if name == "flags" and isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"{deeper}{_plain(v)}" for v in value) + f"\n{_INDENT * 2}]"
    return _plain(value)


def _plain(value: object) -> str:
    return json.dumps(value, separators=(", ", ": "), allow_nan=False)
