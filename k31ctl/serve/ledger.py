"""Settings while they are being chosen: each new word on a flag is remembered with its reason."""

from collections.abc import Mapping
from typing import Final

from k31ctl.core.flags import FlagCatalog
from k31ctl.core.write_launch import write_settings
from k31ctl.serve.rollout import Choice, Departure, NodeValue, Standing, Variable, Where, Word
from k31ctl.values import frozen

_PLACES: Final = {"{nic}": Where.INTERFACE, "{node_ip}": Where.NODE_ADDRESS}
MOONCAKE_CONFIG: Final = "/etc/mooncake/mooncake.json"
_STAND_ALONE: Final = "0"


@frozen
class Entry:
    """What is known of one setting."""

    value: object
    reason: str
    source: str
    standing: Standing
    followers_only: bool = False


class Ledger:
    """Flags and variables by name; later words replace earlier ones and say why."""

    def __init__(self) -> None:
        self.flags: dict[str, Entry] = {}
        self.variables: dict[str, Entry] = {}
        self.departures: list[Departure] = []

    @property
    def values(self) -> dict[str, object]:
        """Every flag and what it is set to."""
        return {flag: entry.value for flag, entry in self.flags.items()}

    def put(
        self,
        flag: str,
        value: object,
        reason: str,
        *,
        source: str,
        standing: Standing,
        followers_only: bool = False,
    ) -> None:
        """Set a flag; where it replaces another value, that is a departure."""
        before = self.flags.get(flag)
        if before is not None and before.value != value:
            self.departures.append(
                Departure(what=f"{flag} {shown(before.value)}", reason=f"{reason}: {shown(value)}")
            )
        self.flags[flag] = Entry(
            value=value,
            reason=reason,
            source=source,
            standing=standing,
            followers_only=followers_only,
        )

    def settle(
        self, flag: str, value: object, reason: str, *, source: str, standing: Standing
    ) -> None:
        """Set a flag; where it says the same already, on that word, only the reason is renewed."""
        before = self.flags.get(flag)
        if before is not None and before.value == value:
            source, standing = before.source, before.standing
        self.put(flag, value, reason, source=source, standing=standing)

    def drop(self, flag: str, reason: str) -> None:
        """Take a flag out, if it is there."""
        before = self.flags.pop(flag, None)
        if before is not None:
            self.departures.append(Departure(what=f"{flag} {shown(before.value)}", reason=reason))

    def export(
        self, name: str, value: Word, reason: str, *, source: str, standing: Standing
    ) -> None:
        """Set a variable, unless it is there already."""
        if name not in self.variables:
            self.variables[name] = Entry(
                value=value, reason=reason, source=source, standing=standing
            )

    def choices(self, catalog: FlagCatalog) -> tuple[Choice, ...]:
        """Every flag as the words that the engine takes, in the order they were set."""
        return tuple(
            Choice(
                flag=flag,
                value=entry.value,
                words=_words(flag, entry.value, catalog),
                reason=entry.reason,
                source=entry.source,
                standing=entry.standing,
                followers_only=entry.followers_only,
            )
            for flag, entry in self.flags.items()
        )

    def exports(self) -> tuple[Variable, ...]:
        """Every variable, by name."""
        return tuple(
            Variable(
                name=name,
                value=_place(entry.value),
                reason=entry.reason,
                source=entry.source,
                standing=entry.standing,
            )
            for name, entry in sorted(self.variables.items())
        )


def shown(value: object) -> str:
    """A value as a person reads it in a sentence."""
    match value:
        case True:
            return "on"
        case False:
            return "off"
        case Mapping():
            return ", ".join(f"{key}={shown(inner)}" for key, inner in value.items())
        case list() | tuple():
            return " ".join(str(one) for one in value)
        case NodeValue():
            times = f" x {value.times}" if value.times > 1 else ""
            return f"{value.before}<{value.where}{times}>{value.after}"
        case _:
            return str(value)


def _words(flag: str, value: object, catalog: FlagCatalog) -> tuple[Word, ...]:
    if not isinstance(value, NodeValue):
        return write_settings({flag: value}, catalog)
    name, _ = write_settings({flag: value.at(_STAND_ALONE)}, catalog)
    return (name, value)


def _place(value: object) -> Word:
    """A variable's value, where a recipe left a place for what a node alone knows."""
    if isinstance(value, NodeValue):
        return value
    text = str(value)
    if text == "{mooncake_json}":
        return MOONCAKE_CONFIG
    return NodeValue(where=_PLACES[text]) if text in _PLACES else text
