"""Conditions on a result, such as ``fits==true`` or ``capacity.max_requests>=8``."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite

from k31ctl.errors import GateError, UsageError
from k31ctl.values import frozen

_GATE = re.compile(r"\s*([A-Za-z_][\w.\[\]]*)\s*(<=|>=|==|!=|<|>)\s*(\S+)\s*")
SECTIONS = ("performance", "cost")
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}


@frozen
class Gate:
    """One condition: a name in the result, a comparison, a number."""

    text: str
    name: str
    comparison: str
    value: float


@frozen
class GateResult:
    """What a gate found."""

    gate: str
    actual: float | bool
    passed: bool

    @property
    def actual_text(self) -> str:
        """What was found, as a gate would write it."""
        if isinstance(self.actual, bool):
            return str(self.actual).lower()
        return f"{self.actual:.10g}"


def parse_gate(text: str) -> Gate:
    """Read ``name<=value``; raises UsageError where it is not one."""
    found = _GATE.fullmatch(text)
    value = _number(found[3]) if found else None
    if found is None or value is None:
        raise UsageError(
            f"{text[:80]!r} is not a gate",
            where="--gate",
            remedy="write a name from the result, a comparison and a number: 'fits==true' or "
            "'memory.per_gpu.free_bytes>=1000000000'",
        )
    return Gate(text=text.strip(), name=found[1], comparison=found[2], value=value)


def _number(text: str) -> float | None:
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        return None
    return value if isfinite(value) else None


def evaluate(gate: Gate, result: Mapping[str, object]) -> GateResult:
    """Hold a gate against a result; raises UsageError where the name is not a number in it.

    Raises UsageError.
    """
    names = numeric_names(result)
    chosen = _chosen(gate.name, names)
    if len(chosen) != 1:
        what = "is in the result more than once" if chosen else "is not a number in the result"
        shown = ", ".join(sorted(chosen or names)[:12])
        raise UsageError(
            f"{gate.name} {what}", where=f"--gate {gate.text!r}", remedy=f"names are: {shown}"
        )
    actual = names[chosen[0]]
    if isinstance(actual, bool) and not _is_of_truth(gate):
        raise UsageError(
            f"{gate.name} is true or false, and nothing between",
            where=f"--gate {gate.text!r}",
            remedy=f"write {gate.name}==true or {gate.name}==false",
        )
    passed = _OPERATORS[gate.comparison](float(actual), gate.value)
    return GateResult(gate=gate.text, actual=actual, passed=passed)


def _is_of_truth(gate: Gate) -> bool:
    return gate.comparison in ("==", "!=") and gate.value in (0, 1)


def require_names(gates: Iterable[Gate], result: Mapping[str, object]) -> None:
    """Raise UsageError for the first gate on what is no number in the result."""
    for gate in gates:
        evaluate(gate, result)


def require_all(
    gates: Iterable[Gate], result: Mapping[str, object], *, where: str, remedy: str
) -> None:
    """Raise GateError for the first gate that the result does not meet."""
    for gate in gates:
        held = evaluate(gate, result)
        if not held.passed:
            raise GateError(
                f"{gate.text} does not hold: it is {held.actual_text}", where=where, remedy=remedy
            )


def _chosen(name: str, names: Mapping[str, float | bool]) -> list[str]:
    """The full names that a name can stand for: one where it is clear.

    What performance and cost say themselves goes before what lies deeper, such as an API's price,
    and before the simulation that performance already speaks for.
    """
    if name in names:
        return [name]
    matches = [n for n in names if n.endswith(f".{name}")]
    heads = [f"{section}.{name}" for section in SECTIONS if f"{section}.{name}" in names]

    def behind(other: str) -> bool:
        return any(
            other.count(".") > head.count(".") or other.startswith("simulation.") for head in heads
        )

    return [n for n in matches if n in heads or not behind(n)]


def numeric_names(result: Mapping[str, object], prefix: str = "") -> dict[str, float | bool]:
    """Every number and truth value of nested mappings, by dotted name; lists are left out."""
    found: dict[str, float | bool] = {}
    for key, value in result.items():
        if isinstance(value, Mapping):
            found |= numeric_names(value, f"{prefix}{key}.")
        elif isinstance(value, bool | int | float):
            found[f"{prefix}{key}"] = value if isinstance(value, bool) else float(value)
    return found
