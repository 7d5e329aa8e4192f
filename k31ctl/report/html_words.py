"""Numbers and ranges as a page says them: three digits that matter, and always a unit."""

from collections.abc import Callable
from typing import Final

from k31ctl.report.html_read import Row, number
from k31ctl.units import show_gib

NONE: Final = "\u2013"
TIMES: Final = "\u00d7"
BOUNDS: Final = {
    "memory": "memory bandwidth",
    "compute": "arithmetic",
    "network": "the links between GPUs",
    "launch": "kernel launches",
    "queue": "waiting in the queue",
}
_THOUSAND: Final = 1_000
_DIGITS: Final = 3
_CENTS: Final = 0.1
_DURATIONS: Final = ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (1.0, 1.0, "s"))
_LARGE: Final = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


def figure(value: object) -> str:
    """A number with three digits that matter and commas between thousands; counts as they are."""
    found = number(value)
    if found is None:
        return NONE
    if abs(found) >= _THOUSAND or isinstance(found, int) or found == 0:
        return f"{found:,.0f}"
    shown = f"{found:#.{_DIGITS}g}"
    return f"{found:.8f}".rstrip("0") if "e" in shown else shown.rstrip(".")


def large(value: object) -> str:
    """A large count in words: 1.20 billion."""
    found = number(value)
    for size, word in _LARGE:
        if found is not None and abs(found) >= size:
            return f"{found / size:.3g} {word}"
    return figure(value)


def gib(value: object) -> str:
    """A size in GiB with one decimal, without its unit."""
    found = number(value)
    return NONE if found is None else show_gib(found)


def share(value: object) -> str:
    """A fraction as a percentage."""
    found = number(value)
    return NONE if found is None else f"{round(found * 100, 1):g} %"


def usd(value: object) -> str:
    """US dollars: cents for a few, whole dollars for many, three digits below one cent."""
    found = number(value)
    if found is None:
        return NONE
    if abs(found) >= _THOUSAND:
        return f"${found:,.0f}"
    if abs(found) >= _CENTS or found == 0:
        return f"${found:.2f}"
    return f"${found:.6f}".rstrip("0").rstrip(".")


def duration(value: object) -> str:
    """A time in the unit that leaves a readable number."""
    found = number(value)
    if found is None:
        return NONE
    if found == 0:
        return "0 s"
    for least, unit, name in _DURATIONS:
        if abs(found) >= least:
            return f"{figure(found / unit)} {name}"
    small = abs(found) < 1 / _THOUSAND
    return f"{figure(found * (1e6 if small else 1e3))} {'µs' if small else 'ms'}"


def between(row: Row, key: str, form: Callable[[object], str] = figure) -> str:
    """The range of a value, ``low to high``, or nothing where it has none."""
    return spread(row.get(f"{key}_low"), row.get(f"{key}_high"), form)


def spread(low: object, high: object, form: Callable[[object], str] = figure) -> str:
    """``low to high``, the unit once where both have the same, or nothing where one is missing."""
    if number(low) is None or number(high) is None:
        return ""
    (first, *unit), (last, *same) = form(low).split(" ", 1), form(high).split(" ", 1)
    return f"{' '.join([first, *(unit if unit != same else [])])} to {' '.join([last, *same])}"


def ranged(row: Row, key: str, form: Callable[[object], str] = figure) -> str:
    """A value and its range: ``1.2 s (0.9 to 1.6 s)``."""
    range_ = between(row, key, form)
    return form(row.get(key)) + (f" ({range_})" if range_ else "")


def bound(value: object) -> str:
    """What limits a time, in words."""
    return BOUNDS.get(str(value), str(value or NONE))


def label(key: str) -> str:
    """A key as words: ``usd_per_gpu`` is ``USD per GPU``."""
    words = {"usd": "USD", "gpu": "GPU", "gpus": "GPUs", "kwh": "kWh", "pue": "PUE"}
    return " ".join(words.get(word, word) for word in key.split("_"))
