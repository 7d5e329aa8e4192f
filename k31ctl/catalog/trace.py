"""A trace of requests, CSV or JSON lines, as arrivals; a bad row is named by its line."""

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from k31ctl.core.arrivals import Arrival, OpenLoop, RequestSize
from k31ctl.errors import InputError
from k31ctl.values import frozen

MAX_BYTES: Final = 128 * 2**20
MAX_ROWS: Final = 1_000_000
MAX_TOKENS: Final = 2**40
MAX_S: Final = 1e9
_MAX_LINE: Final = 2**20
_MAX_SHOWN: Final = 60
_REMEDY: Final = (
    "write CSV or JSON lines with arrival (seconds), prompt, output and, where known, cached "
    "(tokens)"
)


@frozen
class Columns:
    """The names of a kind of trace; ``arrival_s`` turns the text or number there into seconds."""

    kind: str
    arrival: str
    prompt: str
    output: str
    cached: str | None
    blocks: str | None
    arrival_s: Callable[[object], float]


@frozen
class Trace:
    """Arrivals in order, the first at 0, and what was done to the file to make them so."""

    load: OpenLoop
    kind: str
    notes: tuple[str, ...]


class _BadRow(Exception):  # noqa: N818 - never leaves this module
    """What is wrong with a row, before its line is known."""


def read_trace(path: Path) -> Trace:
    """Read a trace; raises InputError, with the line, where the file is not one."""
    where = str(path)
    content = _content(path, where)
    columns, rows = _rows(content, where)
    arrivals: list[Arrival] = []
    left_out = 0
    for line, row in rows:
        try:
            arrival = _arrival(row, columns)
        except _BadRow as bad:
            raise _bad(f"line {line}: {bad}", where) from None
        if arrival is None:
            left_out += 1
        else:
            arrivals.append(arrival)
        if len(arrivals) > MAX_ROWS:
            raise _bad(f"more than {MAX_ROWS:,} requests", where, "cut the trace")
    if not arrivals:
        raise _bad("no request in the trace", where)
    return _trace(arrivals, columns.kind, left_out)


def _trace(arrivals: list[Arrival], kind: str, left_out: int) -> Trace:
    notes = []
    if left_out:
        notes.append(f"{left_out:,} rows without a prompt or an output were left out")
    ordered = sorted(arrivals, key=lambda arrival: arrival.arrival_s)
    if ordered != arrivals:
        notes.append("rows were not in the order of arrival and were sorted")
    start_s = ordered[0].arrival_s
    if start_s:
        notes.append("times were shifted so that the first request arrives at 0 s")
        ordered = [Arrival(arrival_s=a.arrival_s - start_s, size=a.size) for a in ordered]
    return Trace(load=OpenLoop(arrivals=tuple(ordered)), kind=kind, notes=tuple(notes))


def _content(path: Path, where: str) -> str:
    try:
        if not path.exists():
            raise _bad("no such file", where, "name a trace file")
        if not path.is_file():
            raise _bad("not a regular file", where)
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _bad(f"cannot be read: {error.strerror}", where, "make the file readable") from None
    except ValueError:
        raise _bad("not a path", where, "name a trace file") from None
    if len(content) > MAX_BYTES:
        raise _bad(f"larger than {MAX_BYTES} bytes", where, "cut the trace")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _bad(f"line {line}: not UTF-8 text", where) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _bad(f"line {line}: binary data", where)
    return text


def _rows(text: str, where: str) -> tuple[Columns, Iterator[tuple[int, Mapping[str, Any]]]]:
    """Return the columns of a trace and its rows by line; JSON lines begin with a brace."""
    lines = [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise _bad("empty", where)
    for number, line in lines:
        if len(line) > _MAX_LINE:
            raise _bad(f"line {number}: longer than {_MAX_LINE} characters", where)
    first_line, first = lines[0]
    if first.lstrip().startswith(("{", "[")):
        columns = _columns(list(_json_row(first_line, first, where)), first_line, where)
        return columns, ((n, _json_row(n, line, where)) for n, line in lines)
    header = [name.strip() for name in _cells(first_line, first, where)]
    columns = _columns(header, first_line, where)
    return columns, ((n, _csv_row(n, line, header, where)) for n, line in lines[1:])


def _json_row(line: int, text: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise _bad(f"line {line}: not JSON", where) from None
    if not isinstance(row, dict):
        raise _bad(f"line {line}: not a JSON object", where)
    return row


def _csv_row(line: int, text: str, header: list[str], where: str) -> dict[str, str]:
    cells = _cells(line, text, where)
    if len(cells) != len(header):
        raise _bad(f"line {line}: {len(cells)} values for {len(header)} columns", where)
    return dict(zip(header, cells, strict=True))


def _cells(line: int, text: str, where: str) -> list[str]:
    try:
        return next(csv.reader([text.rstrip("\r")], strict=True))
    except csv.Error as error:
        raise _bad(f"line {line}: not CSV: {error}", where) from None


def _columns(names: list[str], line: int, where: str) -> Columns:
    """Return the kind of trace that has these columns, in any order and with others beside them."""
    if len(set(names)) < len(names):
        raise _bad(f"line {line}: a column is there twice", where)
    for kind in KINDS:
        if {kind.arrival, kind.prompt, kind.output} <= set(names):
            return kind
    nearest = max(KINDS, key=lambda k: len({k.arrival, k.prompt, k.output} & set(names)))
    missing = [n for n in (nearest.arrival, nearest.prompt, nearest.output) if n not in names]
    raise _bad(f"line {line}: no column {', '.join(missing)} in the header", where)


def _arrival(row: Mapping[str, Any], columns: Columns) -> Arrival | None:
    """Return the arrival of a row, or None where it asks for nothing or gets nothing."""
    for name in (columns.arrival, columns.prompt, columns.output):
        if name not in row:
            raise _BadRow(f"no {name}")
    arrival_s = _at(columns.arrival_s, row[columns.arrival], columns.arrival)
    prompt = _tokens(row[columns.prompt], columns.prompt)
    output = _tokens(row[columns.output], columns.output)
    cached = 0
    if columns.cached is not None and row.get(columns.cached) not in (None, ""):
        cached = _tokens(row[columns.cached], columns.cached)
    if not prompt or not output:
        return None
    if cached > prompt:
        raise _BadRow(f"{columns.cached} is {cached}, more than {columns.prompt}, {prompt}")
    size = RequestSize(
        prompt_tokens=prompt,
        output_tokens=output,
        cached_tokens=min(cached, prompt - 1),
        blocks=() if columns.blocks is None else _blocks(row.get(columns.blocks), columns.blocks),
    )
    return Arrival(arrival_s=arrival_s, size=size)


def _blocks(raw: object, name: str) -> tuple[int, ...]:
    """Numbers of blocks: a list in JSON, the text of one in CSV."""
    try:
        found = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError):
        found = raw
    if found is None:
        return ()
    if not isinstance(found, list) or not all(type(n) is int and n >= 0 for n in found):
        raise _BadRow(f"{name} is {_shown(raw)}, not a list of whole numbers")
    return tuple(found)


def _at(arrival_s: Callable[[object], float], raw: object, name: str) -> float:
    try:
        seconds = arrival_s(raw)
    except (ValueError, TypeError, OverflowError):
        raise _BadRow(f"{name} is {_shown(raw)}, not a time") from None
    if not (math.isfinite(seconds) and seconds >= 0):
        raise _BadRow(f"{name} is {_shown(raw)}, not a time of 0 or later")
    return seconds


def _tokens(raw: object, name: str) -> int:
    try:
        value = _number(raw)
    except (ValueError, TypeError, OverflowError):
        raise _BadRow(f"{name} is {_shown(raw)}, not a number of tokens") from None
    if not 0 <= value <= MAX_TOKENS or value != int(value):
        raise _BadRow(f"{name} is {_shown(raw)}, not a whole number from 0 to {MAX_TOKENS}")
    return int(value)


def _number(raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise TypeError
    return float(raw)


def _seconds(raw: object) -> float:
    """Seconds of a number of them."""
    value = _number(raw)
    return value if value <= MAX_S else math.inf


def _milliseconds(raw: object) -> float:
    """Seconds of a number of milliseconds."""
    return _seconds(raw) / 1000


def _moment(raw: object) -> float:
    """Seconds since 1970 of a date and time; without an offset it is taken as UTC."""
    if not isinstance(raw, str):
        raise TypeError
    moment = datetime.fromisoformat(raw.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


KINDS: Final = (
    Columns(
        kind="k31ctl",
        arrival="arrival",
        prompt="prompt",
        output="output",
        cached="cached",
        blocks=None,
        arrival_s=_seconds,
    ),
    # Mooncake's published traces; hash_ids name blocks of 512 tokens, which a benchmark repeats and
    # a simulation does not count as cached.
    Columns(
        kind="Mooncake",
        arrival="timestamp",
        prompt="input_length",
        output="output_length",
        cached=None,
        blocks="hash_ids",
        arrival_s=_milliseconds,
    ),
    # AzurePublicDataset, LLM inference traces of 2023 and 2024.
    Columns(
        kind="Azure",
        arrival="TIMESTAMP",
        prompt="ContextTokens",
        output="GeneratedTokens",
        cached=None,
        blocks=None,
        arrival_s=_moment,
    ),
)


def _bad(what: str, where: str, remedy: str = _REMEDY) -> InputError:
    return InputError(what, where=where, remedy=remedy)


def _shown(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
