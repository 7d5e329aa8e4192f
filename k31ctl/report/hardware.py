"""A measured machine: what was found, and the hardware profile that ``plan --on`` takes."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from k31ctl.core.hardware import Node
from k31ctl.core.measured_host import HostRates, Rate
from k31ctl.report.envelope import envelope, plain
from k31ctl.report.files import STANDARD_OUTPUT, write_whole
from k31ctl.report.lines import folded, printable
from k31ctl.units import Unit, show, show_bytes

_FIGURES = 5
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def told(steps: Iterator[str | HostRates]) -> HostRates:
    """Follow a measurement with a line on standard error for each step; returns what it found."""
    for step in steps:
        if isinstance(step, HostRates):
            return step
        sys.stderr.write(f"measuring {step}\n")
    raise AssertionError("a measurement ends with what it found")


def show_hardware(node: Node, rates: HostRates, *, out: Path, as_json: bool) -> None:
    """Write the profile, then say what was measured and what was not."""
    write_whole(out, profile_yaml(node))
    if as_json:
        result = {"file": str(out), "rates": rates, "profile": _written(node)}
        sys.stdout.write(envelope("bench-hw", inputs={"out": str(out)}, result=result))
    elif out != STANDARD_OUTPUT:
        sys.stdout.write(_text(node, rates, out))


def profile_yaml(node: Node) -> str:
    """The profile as a file under ``profiles/hardware`` is written."""
    import yaml  # noqa: PLC0415  slow to import, and only a file needs it

    return "# Written by k31ctl bench hw.\n" + yaml.safe_dump(
        _written(node), sort_keys=False, width=100
    )


def _written(value: Any) -> dict[str, Any]:
    """A profile's dataclass by the keys and with the units of its file."""
    hints = type(value).__annotations__
    found = {}
    for entry in fields(value):
        own = getattr(value, entry.name)
        if own is None and entry.default is None:
            continue
        key = entry.metadata.get("key", entry.name)
        found[key] = _cell(own, _unit(hints[entry.name]))
    return found


def _cell(value: Any, unit: str | None) -> Any:
    """One value as YAML has it; numbers of fields with a unit get theirs."""
    if isinstance(value, Mapping):
        return {str(key): _cell(entry, unit) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_cell(entry, unit) for entry in value]
    if hasattr(value, "__dataclass_fields__"):
        return _written(value)
    if unit is not None and isinstance(value, int | float):
        return quantity(value, unit)
    return plain(value)


def _unit(hint: Any) -> str | None:
    """The unit that a field's annotation carries, somewhere inside it."""
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, Unit):
            return mark.symbol
    for inner in getattr(hint, "__args__", ()):
        if (found := _unit(inner)) is not None:
            return found
    return None


def quantity(value: float, unit: str) -> str:
    """A quantity as a profile writes it: bytes exactly, rates with five figures."""
    if isinstance(value, int):
        return f"{value} {unit}"
    for factor, prefix in _PREFIXES:
        if value >= factor:
            return f"{float(f'{value / factor:.{_FIGURES}g}')} {prefix}{unit}"
    return f"{float(f'{value:.{_FIGURES}g}')} {unit}"


def _text(node: Node, rates: HostRates, out: Path) -> str:
    rows: list[tuple[str, Rate | None, str]] = [
        ("memory, read", rates.read, "B/s"),
        ("memory, copied", rates.copy, "B/s"),
        *((f"matmul, {name}", rate, "FLOP/s") for name, rate in sorted(rates.matmul.items())),
        ("disk, read", rates.disk, "B/s"),
        ("loopback", rates.loopback, "B/s"),
    ]
    gpus = rates.gpus
    if gpus is not None:
        rows += [
            ("GPU memory, copied", gpus.copy, "B/s"),
            *((f"GPU matmul, {n}", rate, "FLOP/s") for n, rate in sorted(gpus.matmul.items())),
            ("GPU to GPU", gpus.link, "B/s"),
            ("host to GPU", gpus.host_link, "B/s"),
        ]
    lines = folded(
        f"{rates.processor}, {rates.num_cores} cores, {show_bytes(rates.memory_bytes)}.", indent=""
    )
    lines += ["", f"  {'rate':<22}{'low':>14}{'median':>14}{'high':>14}"]
    for name, rate, unit in rows:
        if rate is not None:
            cells = "".join(f"{show(v, unit):>14}" for v in (rate.low, rate.value, rate.high))
            lines.append(f"  {name:<22}{cells}")
    lines.append("")
    for name, why in rates.not_measured.items():
        lines += folded(f"not measured: {name}: {why}", indent="  ")
    lines += folded(f"written: {out}; plan with it: k31ctl plan MODEL --on {out}", indent="  ")
    if node.gpu.vendor == "cpu":
        lines += folded("the processor stands for a GPU: for --engine embedded", indent="  ")
    return "".join(printable(line).rstrip() + "\n" for line in lines)
