"""The stage in which a run broke off, from the lines and gaps that it had written by then."""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from k31ctl.bench.health import spread
from k31ctl.bench.pool import FloatPool
from k31ctl.bench.record import ROWS_FILE, plain
from k31ctl.bench.series import QUANTILES, StageSeries, Timeline, quantiles
from k31ctl.outside_json import parsed
from k31ctl.regular_file import read_regular, regular_status

REASON: Final = "the run broke off, and whether the client kept up was not judged"
_MOST_BYTES: Final = 1 << 32
_PIECE_BYTES: Final = 1 << 18


def recovered_stage(folder: Path, number: int) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return stage ``number`` of a record and its curves, None where no request of it had ended.

    It is not whole, and not valid: nothing is known of the client.
    """
    rows = list(_rows(folder / ROWS_FILE, number))
    if not rows:
        return None
    answered = [row for row in rows if row["error"] is None]
    name, length_s = f"stage {number + 1}, broken off", max(row["ended_s"] for row in rows)
    ttft, e2e, tpot = (array("d", values) for values in _latencies(answered))
    tokens = sum(_tokens(row) for row in answered)
    with TemporaryFile() as file:
        gaps = FloatPool(file)
        _read_gaps(folder / f"gaps-{number}.f32", gaps)
        itl, itl_curve = gaps.spread(), gaps.curve(QUANTILES)
    kinds = Counter(row["error"] for row in rows if row["error"] is not None)
    stage = {
        "name": name,
        "concurrency": None,
        "rate": None,
        "repeat": 0,
        "requests": len(rows),
        "completed": len(answered),
        "errors": len(rows) - len(answered),
        "errors_by_kind": dict(sorted(kinds.items())),
        "duration_s": length_s,
        "request_rate": len(answered) / length_s,
        "output_tok_s": tokens / length_s,
        "ttft_s": plain(spread(ttft)),
        "itl_s": plain(itl),
        "tpot_s": plain(spread(tpot)),
        "e2e_s": plain(spread(e2e)),
        "client": {"is_valid": False, "reasons": [REASON]},
        "is_whole": False,
    }
    bin_s, bins = _timeline(rows).bins(start_s=0.0, end_s=length_s)
    curves = StageSeries(
        name=name,
        repeat=0,
        ttft_s=quantiles(ttft),
        itl_s=itl_curve,
        tpot_s=quantiles(tpot),
        e2e_s=quantiles(e2e),
        bin_s=bin_s,
        bins=bins,
        samples=(),
    )
    return stage, plain(curves)


def _rows(path: Path, number: int) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of a stage; the last line of a file may be cut off."""
    try:
        lines = read_regular(path, most_bytes=_MOST_BYTES).decode().split("\n")
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        try:
            row = parsed(line)
            is_ours = row["stage"] == number and row["error"] != "abandoned"
            ended_s = float(row["ended_s"])
        except (ValueError, KeyError, TypeError):
            continue
        if is_ours and ended_s > 0:
            yield row


def _tokens(row: Mapping[str, Any]) -> int:
    return int(row["output_tokens"] or row["events"])


def _latencies(answered: list[Mapping[str, Any]]) -> tuple[list[float], list[float], list[float]]:
    """Times to the first and to the last token, and per token after the first."""
    ttft, e2e = [row["ttft_s"] for row in answered], [row["last_s"] for row in answered]
    tpot = [
        (row["last_s"] - row["ttft_s"]) / (_tokens(row) - 1)
        for row in answered
        if _tokens(row) > 1 and row["events"] > 1
    ]
    return ttft, e2e, tpot


def _read_gaps(path: Path, pool: FloatPool) -> None:
    try:
        regular_status(path)
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                pool.extend(array("f", piece[: len(piece) // 4 * 4]))
    except OSError:
        return


def _timeline(rows: list[Mapping[str, Any]]) -> Timeline:
    found = Timeline()
    for row in rows:
        ttft_s, last_s = row["ttft_s"] or 0.0, row["last_s"] or 0.0
        found.add(
            sent_s=row["sent_s"],
            first_s=row["since_s"] + ttft_s,
            last_s=row["since_s"] + last_s,
            ended_s=row["ended_s"],
            tokens=_tokens(row),
            ttft_s=ttft_s,
            is_ok=row["error"] is None,
        )
    return found
