"""Values that are only known when a launch runs, and what happens when a rule asks for one."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from k31ctl.values import frozen

T = TypeVar("T")


class OpenValueError(Exception):
    """A rule asked for a value that is only known when the launch runs, and has nothing to say."""


def known_or(ask: Callable[[], T], otherwise: T) -> T:
    """Return what is asked for, or something else where that is only known at run time."""
    try:
        return ask()
    except OpenValueError:
        return otherwise


def is_open_text(value: object) -> bool:
    """Whether a value is text in which a variable or a template still stands."""
    return isinstance(value, str) and ("$" in value or "{{" in value or "`" in value)


@frozen
class OpenFields(Mapping[str, object]):
    """A JSON object that is known but for some values; asking for one of those raises."""

    fields: dict[str, object]

    def __getitem__(self, name: str) -> object:
        """The value of a field; OpenValueError where it is not known."""
        value = self.fields[name]
        if is_open_text(value):
            raise OpenValueError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        """The names of the fields."""
        return iter(self.fields)

    def __len__(self) -> int:
        """How many fields there are."""
        return len(self.fields)


def plain_fields(value: Mapping[str, object]) -> dict[str, object]:
    """An object in which ``True`` and ``False``, as Python writes them, are truth values.

    A dotted flag (``--attention-config.backend``) leaves them as text, and the engine's settings
    take such text for what it says.
    """
    truths = {"true": True, "false": False}
    return {
        name: truths.get(inner.casefold(), inner) if isinstance(inner, str) else inner
        for name, inner in value.items()
    }
