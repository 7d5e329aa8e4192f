"""Charts of lines as SVG inside a page: no script, readable in print and by a screen reader."""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10
from typing import Final

from k31ctl.report.html_elements import Markup, el, join
from k31ctl.values import frozen

WIDTH: Final = 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 10, 44
_COLOURS: Final = 6
_DASHES: Final = (None, "7 3", "2 3", "9 3 2 3")
_MOST_TICKS: Final = 6
_FINE_DECADES: Final = 2
_LEAST_RATIO: Final = 1.05

Point = tuple[float, float]


@frozen
class Axis:
    """A direction of a chart, from ``low`` to ``high``."""

    label: str
    low: float
    high: float
    is_log: bool

    def share(self, value: float) -> float:
        """Where a value is, 0 at the low end and 1 at the high."""
        if self.is_log:
            return log10(value / self.low) / log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values between the ends."""
        if self.is_log:
            return _log_ticks(self.low, self.high)
        step = _round_step((self.high - self.low) / _MOST_TICKS)
        first, last = ceil(self.low / step - 1e-9), floor(self.high / step + 1e-9)
        return [n * step for n in range(first, last + 1)]


@frozen
class Line:
    """One line; ``style`` chooses colour and dashes, ``notes`` is what each point says.

    A line without ``name`` is not in the legend.
    """

    name: str
    points: tuple[Point, ...]
    style: int
    has_marks: bool
    notes: tuple[str, ...]


@frozen
class Band:
    """What lies between a low and a high, point by point."""

    name: str
    points: tuple[tuple[float, float, float], ...]
    style: int


def axis(label: str, values: Sequence[float], *, is_log: bool, from_zero: bool = False) -> Axis:
    """Return an axis that holds all values, with a little room around them."""
    low, high = min(values), max(values)
    if is_log and low > 0:
        if high < low * _LEAST_RATIO:
            low, high = low / _LEAST_RATIO, high * _LEAST_RATIO
        return Axis(label=label, low=low, high=high, is_log=True)
    low = 0.0 if from_zero or low < 0 else low
    if high <= low:
        high = low + (abs(low) or 1.0) * (_LEAST_RATIO - 1)
    return Axis(label=label, low=low, high=high + (high - low) * 0.04, is_log=False)


def line_chart(
    title: str,
    said: str,
    *,
    x: Axis,
    y: Axis,
    lines: Sequence[Line],
    bands: Sequence[Band] = (),
    height: int = 280,
    numbers: Markup | None = None,
) -> Markup:
    """Return a figure: what it shows in words, the drawing, its legend, and the numbers behind."""
    frame = _Frame(x, y, height)
    drawing = el(
        "svg",
        el("title", title),
        el("desc", said),
        *frame.grid(),
        *(frame.band(band) for band in bands),
        *(part for line in lines for part in frame.line(line)),
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=f"{title}. {said}",
        class_="drawn",
    )
    behind = el("details", el("summary", "Numbers: ", title), numbers) if numbers else None
    return el(
        "figure",
        el("figcaption", el("strong", title), " ", said),
        el("div", drawing, class_="chart"),
        _legend(lines, bands),
        behind,
    )


class _Frame:
    """The place of values in a drawing."""

    def __init__(self, x: Axis, y: Axis, height: int) -> None:
        self._x, self._y, self._height = x, y, height

    def at(self, x: float, y: float) -> tuple[str, str]:
        across = _LEFT + self._x.share(x) * (WIDTH - _LEFT - _RIGHT)
        up = self._height - _BOTTOM - self._y.share(y) * (self._height - _TOP - _BOTTOM)
        return f"{across:.1f}", f"{up:.1f}"

    def grid(self) -> Iterator[Markup]:
        """Yield lines of the grid with their numbers, and what the axes are."""
        base, right = self._height - _BOTTOM, WIDTH - _RIGHT
        for value in self._x.ticks():
            across, _ = self.at(value, self._y.low)
            yield el("line", x1=across, x2=across, y1=_TOP, y2=base, class_="rule")
            yield el("text", tick(value), x=across, y=base + 17, text_anchor="middle")
        for value in self._y.ticks():
            _, up = self.at(self._x.low, value)
            yield el("line", x1=_LEFT, x2=right, y1=up, y2=up, class_="rule")
            yield el("text", tick(value), x=_LEFT - 7, y=float(up) + 4, text_anchor="end")
        middle = (_LEFT + right) / 2
        yield el("text", self._x.label, x=middle, y=self._height - 6, text_anchor="middle")
        up_middle = (_TOP + base) / 2
        yield el(
            "text",
            self._y.label,
            x=14,
            y=up_middle,
            text_anchor="middle",
            transform=f"rotate(-90 14 {up_middle:g})",
        )

    def line(self, line: Line) -> Iterator[Markup]:
        places = [self.at(x, y) for x, y in line.points]
        if len(places) > 1:
            yield el(
                "polyline",
                points=" ".join(f"{x},{y}" for x, y in places),
                fill="none",
                stroke=_colour(line.style),
                stroke_width=2,
                stroke_dasharray=_dash(line.style),
            )
        notes = line.notes or ("",) * len(places)
        for (x, y), note in zip(places, notes, strict=True):
            if line.has_marks or len(places) == 1:
                said = el("title", note) if note else None
                yield el("circle", said, cx=x, cy=y, r=4, fill=_colour(line.style))

    def band(self, band: Band) -> Markup:
        upper = [self.at(x, high) for x, _, high in band.points]
        lower = [self.at(x, low) for x, low, _ in reversed(band.points)]
        return el(
            "polygon",
            points=" ".join(f"{x},{y}" for x, y in (*upper, *lower)),
            fill=_colour(band.style),
            fill_opacity=0.18,
        )


def tick(value: float) -> str:
    """Return a value of an axis as short as it can be told."""
    size = abs(value)
    for least, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= least:
            return f"{value / (1e3 if letter == 'k' else least):.4g}{letter}"
    return f"{value:.4g}"


def _legend(lines: Sequence[Line], bands: Sequence[Band]) -> Markup | None:
    named = [line for line in lines if line.name]
    if len(named) + len(bands) < 2:  # noqa: PLR2004  one line needs no name
        return None
    entries = [el("li", _sample(line.style), " ", line.name) for line in named] + [
        el(
            "li",
            el(
                "svg",
                el("rect", width=26, height=10, fill=_colour(band.style), fill_opacity=0.25),
                width=26,
                height=10,
                aria_hidden="true",
            ),
            " ",
            band.name,
        )
        for band in bands
    ]
    return el("ul", join(entries), class_="legend")


def _sample(style: int) -> Markup:
    line = el(
        "line",
        x1=0,
        x2=26,
        y1=5,
        y2=5,
        stroke=_colour(style),
        stroke_width=3,
        stroke_dasharray=_dash(style),
    )
    return el("svg", line, width=26, height=10, aria_hidden="true")


def _colour(style: int) -> str:
    return f"var(--c{style % _COLOURS + 1})"


def _dash(style: int) -> str | None:
    return _DASHES[style // _COLOURS % len(_DASHES)]


def _round_step(step: float) -> float:
    power = 10.0 ** floor(log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * 0.999)


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = floor(log10(low)), ceil(log10(high))
    factors = (1, 2, 5) if log10(high / low) <= _FINE_DECADES else (1,)
    found = [
        factor * 10.0**power
        for power in range(first, last + 1)
        for factor in factors
        if low * 0.999 <= factor * 10.0**power <= high * 1.001
    ]
    return found if len(found) > 1 else [low, high]
