"""A Hugging Face ``config.json`` as a mapping, or a reason why it is not one."""

from pathlib import Path
from typing import Any, Final

from k31ctl.catalog.json_profile import unique
from k31ctl.errors import InputError
from k31ctl.outside_json import parsed

CONFIG_NAME: Final = "config.json"
_MAX_BYTES: Final = 8 * 2**20
_MAX_DEPTH: Final = 64


def read_json_config(path: Path) -> tuple[dict[str, Any], str]:
    """Return the configuration in a file, or in a folder's ``config.json``, and its path."""
    where = str(path)
    try:
        place = path / CONFIG_NAME if path.is_dir() else path
        if place != path and not place.exists():
            raise InputError(
                f"this folder holds no {CONFIG_NAME}",
                where=where,
                remedy="name the folder of a checkpoint, or a profile that "
                "k31ctl profiles list models shows",
            )
        where = str(place)
        text = _read(place, where)
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", where=where, remedy="make the file readable"
        ) from None
    value = _parse(text, where)
    if not isinstance(value, dict):
        raise _bad("not a JSON object", where)
    if _too_deep(value):
        raise _bad(f"nested deeper than {_MAX_DEPTH} levels", where)
    return value, where


def _read(place: Path, where: str) -> str:
    if not place.exists():
        raise InputError(
            "no such file", where=where, remedy="name a config.json or a folder that holds one"
        )
    if not place.is_file():
        raise _bad("not a regular file", where)
    with place.open("rb") as stream:
        content = stream.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise _bad(f"larger than {_MAX_BYTES} bytes", where)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _bad("not UTF-8 text", where) from None


def _parse(text: str, where: str) -> object:
    try:
        return parsed(text, pairs=unique)
    except ValueError as error:
        raise _bad(f"not readable as JSON: {error}", where) from None


def _too_deep(value: object) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return True


def _children(value: object) -> list[object]:
    match value:
        case dict():
            return list(value.values())
        case list():
            return value
        case _:
            return []


def _bad(what: str, where: str) -> InputError:
    return InputError(what, where=where, remedy="use the config.json that the checkpoint came with")
