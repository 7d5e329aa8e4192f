"""A cold start for a person at a terminal, and as a document."""

from textwrap import wrap
from typing import Any

from k31ctl.core.cold_start import ColdStart, StartPart
from k31ctl.report.durations import duration
from k31ctl.units import show

WIDTH = 80
LABEL_WIDTH = 22
TIME_WIDTH = 14


def cold_start_text(found: ColdStart) -> list[str]:
    """The whole section as lines of at most 80 columns."""
    total = found.total_s
    said = (
        f"from an empty disk to the first token {duration(total.value)}, between "
        f"{duration(total.low)} and {duration(total.high)} if every part is at its best or worst"
    )
    if found.storage.kind == "memory":
        said = said.replace("an empty disk", "files in host memory")
    lines = wrap(said, WIDTH)
    lines += wrap(
        f"weights on {found.storage.id} read by {found.reader}; each node reads "
        f"{show(found.node_read_bytes, 'B')}"
        + (f"; {found.copies} copies are downloaded" if found.copies > 1 else ""),
        WIDTH - 2,
        initial_indent="  ",
        subsequent_indent="  ",
    )
    lines += ["", _row("  part", "low", "expected", "high") + "  basis"]
    lines += [_part(part) for part in found.parts]
    lines.append(_row("  total", *map(duration, (total.low, total.value, total.high))))
    lines.append("")
    for part in found.parts:
        text = f"{part.part}: {part.detail} ({part.source})"
        lines += wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
    return lines


def cold_start_document(found: ColdStart) -> dict[str, Any]:
    """The same for programs; every time in seconds, every size in bytes."""
    total = found.total_s
    return {
        "total_s": total.value,
        "total_s_low": total.low,
        "total_s_high": total.high,
        "storage": found.storage.id,
        "reader": found.reader,
        "warm_caches": found.warm_caches,
        "download_bytes": found.download_bytes,
        "copies": found.copies,
        "node_read_bytes": found.node_read_bytes,
        "parts": [
            {
                "part": part.part,
                "seconds": part.seconds.value,
                "low": part.seconds.low,
                "high": part.seconds.high,
                "basis": part.basis.value,
                "source": part.source,
                "detail": part.detail,
            }
            for part in found.parts
        ],
    }


def _row(label: str, low: str, value: str, high: str) -> str:
    return f"{label:<{LABEL_WIDTH}}" + "".join(
        f"{text:>{TIME_WIDTH}}" for text in (low, value, high)
    )


def _part(part: StartPart) -> str:
    seconds = part.seconds
    times = [duration(each) for each in (seconds.low, seconds.value, seconds.high)]
    return f"{_row(f'  {part.part}', *times)}  {part.basis}"
