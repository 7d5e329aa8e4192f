"""A data set of requests as JSON lines; a bad row is named by its line."""

from pathlib import Path
from typing import Any, Final

from k31ctl.errors import InputError
from k31ctl.outside_json import parsed
from k31ctl.regular_file import read_regular
from k31ctl.values import frozen

_MOST_BYTES: Final = 1 << 30
_MOST_OUTPUT: Final = 10**9
_REMEDY: Final = 'write a line such as {"prompt": "...", "output_tokens": 256}'


@frozen
class DatasetRow:
    """``said`` is a list of messages, or the text of a prompt."""

    said: Any
    output_tokens: int | None


def read_dataset(path: Path) -> tuple[DatasetRow, ...]:
    """Read ``messages`` or ``prompt`` of every line; raises InputError where one has neither."""
    where = str(path)
    try:
        lines = read_regular(path, most_bytes=_MOST_BYTES).decode().split("\n")
    except OSError as error:
        raise InputError(
            f"cannot be read: {(error.strerror or 'failed').lower()}",
            where=where,
            remedy="name a file of JSON lines",
        ) from None
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", where=where, remedy=_REMEDY) from None
    rows = tuple(_row(text, n, where) for n, text in enumerate(lines, start=1) if text.strip())
    if not rows:
        raise InputError("no request in the data set", where=where, remedy=_REMEDY)
    return rows


def _row(text: str, line: int, where: str) -> DatasetRow:
    try:
        found = parsed(text)
    except ValueError:
        raise InputError(f"line {line}: not JSON", where=where, remedy=_REMEDY) from None
    if not isinstance(found, dict):
        raise InputError(f"line {line}: not a JSON object", where=where, remedy=_REMEDY)
    said = found.get("messages", found.get("prompt"))
    if not (isinstance(said, str) or _are_messages(said)):
        raise InputError(f"line {line}: no messages and no prompt", where=where, remedy=_REMEDY)
    output = found.get("output_tokens", found.get("max_tokens"))
    if output is not None and (
        isinstance(output, bool) or not isinstance(output, int) or not 1 <= output <= _MOST_OUTPUT
    ):
        raise InputError(
            f"line {line}: output_tokens is no count of tokens", where=where, remedy=_REMEDY
        )
    return DatasetRow(said=said, output_tokens=output)


def _are_messages(said: Any) -> bool:
    return (
        isinstance(said, list)
        and bool(said)
        and all(isinstance(message, dict) and "role" in message for message in said)
    )
