"""Which names a gate on a measurement may have, known before anything is measured."""

from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Any, Final, get_args, get_type_hints

from k31ctl.bench.result import StageResult
from k31ctl.core.gates import Gate
from k31ctl.errors import UsageError

_OPEN: Final = ("errors_by_kind.", "against.")  # whose names are known only from the answer
_SHOWN: Final = 12


def require_known(gates: Iterable[Gate]) -> None:
    """Raise UsageError for the first gate on what a stage never has."""
    known = tuple(names(StageResult))
    for gate in gates:
        if gate.name.startswith(_OPEN) or any(_stands_for(gate.name, name) for name in known):
            continue
        word = gate.name.rpartition(".")[2]
        near = [name for name in known if word[:4] in name] or known
        raise UsageError(
            f"{gate.name} is not a number of a measurement",
            where=f"--gate {gate.text!r}",
            remedy=f"names are: {', '.join(near[:_SHOWN])}",
        )


def names(kind: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all numbers and truth values that a value of a type may hold."""
    for name, hint in get_type_hints(kind).items():
        for part in get_args(hint) if isinstance(hint, UnionType) else (hint,):
            if part in (int, float, bool):
                yield prefix + name
            elif hasattr(part, "__dataclass_fields__"):
                yield from names(part, f"{prefix}{name}.")


def _stands_for(short: str, name: str) -> bool:
    return name == short or name.endswith(f".{short}")
