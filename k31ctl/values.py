"""Frozen values: dataclasses that take a third of the time to define.

Half of the program's start went into writing the methods of some hundred frozen dataclasses, of
which one answer uses a few. Here one method is written for each class, its constructor; comparing,
hashing, showing and refusing changes are shared. All of ``dataclasses`` works on the result.
"""

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass with slots, whose fields are given by name."""
    made = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True, match_args=False)(
        cls
    )
    names = tuple(f.name for f in fields(made))  # type: ignore[arg-type]
    shared: dict[str, Any] = {
        "__init__": _constructor(made),
        "__match_args__": (),
        "__eq__": _eq(names),
        "__hash__": _hash(names),
        "__repr__": _repr(names),
        "__setattr__": _refuse_setting,
        "__delattr__": _refuse_deleting,
    }
    for name, method in shared.items():
        if name not in cls.__dict__ or name in ("__init__", "__hash__"):
            setattr(made, name, method)
    return made


def fields_of(value: object) -> dict[str, Any]:
    """Return the fields of a frozen value by name, as they are: what is inside stays a value."""
    return {name: getattr(value, name) for name in value.__slots__}  # type: ignore[attr-defined]


def _constructor(cls: type) -> Callable[..., None]:
    """Write ``__init__`` for the fields of a class, as ``dataclass`` would."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    takes, sets = [], []
    for f in fields(cls):
        given = f.name
        if f.default is not MISSING:
            known[f"_d_{f.name}"] = f.default
            takes.append(f"{f.name}=_d_{f.name}")
        elif f.default_factory is not MISSING:
            known[f"_f_{f.name}"] = f.default_factory
            takes.append(f"{f.name}=_missing")
            given = f"_f_{f.name}() if {f.name} is _missing else {f.name}"
        else:
            takes.append(f.name)
        sets.append(f"_set(self, {f.name!r}, {given})")
    if hasattr(cls, "__post_init__"):
        sets.append("self.__post_init__()")
    star = ", *" if takes else ""
    head = f"def __init__(self{star}, {', '.join(takes)}):" if takes else "def __init__(self):"
    exec("\n ".join([head, *(sets or ["pass"])]), known)  # noqa: S102  names of fields alone
    made: Callable[..., None] = known["__init__"]
    return made


def _eq(names: tuple[str, ...]) -> Callable[[object, object], bool]:
    def equal(self: object, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented  # type: ignore[no-any-return]
        return all(bool(getattr(self, name) == getattr(other, name)) for name in names)

    return equal


def _hash(names: tuple[str, ...]) -> Callable[[object], int]:
    def hashed(self: object) -> int:
        return hash(tuple([getattr(self, name) for name in names]))

    return hashed


def _repr(names: tuple[str, ...]) -> Callable[[object], str]:
    def shown(self: object) -> str:
        listed = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({listed})"

    return shown


def _refuse_setting(self: object, name: str, _: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
