"""Points of two values as plain characters, both axes logarithmic."""

from collections.abc import Iterable, Sequence
from math import log

from k31ctl.report.speed_text import number

ROWS, COLUMNS = 11, 58
_EDGE = 1.02

Point = tuple[float, float, str]


def scatter(points: Iterable[Point], *, across: str, up: str) -> list[str]:
    """Lines of a chart; a later point covers an earlier one. Values must be above 0."""
    shown = list(points)
    lows, highs = _range([x for x, _, _ in shown]), _range([y for _, y, _ in shown])
    grid = [[" "] * COLUMNS for _ in range(ROWS)]
    for x, y, mark in shown:
        column, line = _place(x, lows, COLUMNS), _place(y, highs, ROWS)
        grid[ROWS - 1 - line][column] = mark
    labels = [""] * ROWS
    labels[0], labels[-1] = number(highs[1]), number(highs[0])
    lines = [f"  {up}"]
    lines += [
        f"  {label:>8} |{''.join(row).rstrip()}" for label, row in zip(labels, grid, strict=True)
    ]
    lines.append(f"  {'':>8} +{'-' * COLUMNS}")
    left, right = number(lows[0]), number(lows[1])
    middle = across.center(COLUMNS - len(left) - len(right))
    lines.append(f"  {'':>8}  {left}{middle}{right}")
    return lines


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low * _EDGE else (low / _EDGE, high * _EDGE)


def _place(value: float, ends: tuple[float, float], steps: int) -> int:
    return round((steps - 1) * log(value / ends[0]) / log(ends[1] / ends[0]))
