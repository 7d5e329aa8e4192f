"""Reads typed values out of a config.json and refuses what cannot be true, naming the field."""

import difflib
import math
from collections.abc import Mapping

from k31ctl.errors import InputError

MISSING = object()
SHOWN_CHARACTERS = 60


class ConfigFields:
    """One object of a configuration, with its path for messages."""

    def __init__(self, values: Mapping[str, object], *, where: str, path: str = "") -> None:
        self.values, self.where, self.path = values, where, path

    def fail(self, name: str, what: str, *, remedy: str = "") -> InputError:
        """The error to raise about a field: what is wrong with it and where it stands."""
        return InputError(
            f"{self.path}{name} {what}",
            where=self.where,
            remedy=remedy or "correct the field, or pass the config.json that the release ships",
        )

    def raw(self, *names: str) -> object:
        """The first of several spellings that is there, else ``MISSING``."""
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        return MISSING

    def integer(self, *names: str, low: int = 1, high: int = 1 << 24) -> int:
        """An obligatory whole number between two bounds."""
        value = self.raw(*names)
        if value is MISSING:
            near = difflib.get_close_matches(names[0], self.values, n=1)
            hint = f"did you mean {self.path}{near[0]}?" if near else ""
            raise self.fail(names[0], "is missing", remedy=hint)
        return self._whole(names[0], value, low=low, high=high)

    def integer_or(self, default: int, *names: str, low: int = 0, high: int = 1 << 24) -> int:
        """A whole number, or the default where the field is absent or null."""
        value = self.raw(*names)
        return default if value is MISSING else self._whole(names[0], value, low=low, high=high)

    def _whole(self, name: str, value: object, *, low: int, high: int) -> int:
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fail(name, f"is {_shown(value)}, not a whole number")
        if not low <= value <= high:
            raise self.fail(name, f"is {_shown(value)}, outside {low:,} to {high:,}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false, or the default where the field is absent."""
        value = self.raw(name)
        if value is MISSING:
            return default
        if not isinstance(value, bool):
            raise self.fail(name, f"is {_shown(value)}, not true or false")
        return value

    def text(self, *names: str, default: str | None = None) -> str:
        """A string; obligatory unless there is a default."""
        value = self.raw(*names)
        if value is MISSING and default is not None:
            return default
        if not isinstance(value, str):
            shown = "missing" if value is MISSING else f"{_shown(value)}, not text"
            raise self.fail(names[0], f"is {shown}")
        return value

    def child(self, name: str) -> "ConfigFields":
        """An obligatory object inside this one."""
        found = self.child_or_none(name)
        if found is None:
            raise self.fail(name, "is missing")
        return found

    def child_or_none(self, name: str) -> "ConfigFields | None":
        """An object inside this one, or None where it is absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.fail(name, f"is {_shown(value)}, not an object")
        return ConfigFields(value, where=self.where, path=f"{self.path}{name}.")

    def integers(self, *names: str, low: int, high: int) -> tuple[int, ...]:
        """A list of whole numbers."""
        value = self.raw(*names)
        if not isinstance(value, list | tuple):
            raise self.fail(names[0], "is missing or not a list")
        return tuple(
            self._whole(f"{names[0]}[{i}]", item, low=low, high=high)
            for i, item in enumerate(value)
        )

    def strings(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty where the field is absent."""
        value = self.raw(name)
        if value is MISSING:
            return ()
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise self.fail(name, "is not a list of strings")
        return tuple(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
