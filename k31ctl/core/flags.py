"""What an engine's command line accepts: flags, values and environment variables, as data."""

from dataclasses import field
from typing import Final

from k31ctl.values import frozen

_SWITCHES: Final = ("bool_optional", "bool_optional:EnableDisableAction")
_PAIRED: Final = (("--enable-", "--disable-"), ("--disable-", "--enable-"))


@frozen
class Flag:
    """One argument: its spellings, the first of which is its name, and what it takes.

    ``action``, ``type`` and ``nargs`` are what the engine's own parser has, by name. A positional
    argument has no spelling. ``hidden_names`` are accepted and left out of the engine's help.
    """

    names: tuple[str, ...] = ()
    dest: str
    action: str = "store"
    type: str = "str"
    nargs: str | int | None = None
    choices: tuple[object, ...] | None = None
    default: object = None
    const: object = None
    required: bool = False
    group: str = ""
    deprecated: bool = False
    hidden: bool = False
    hidden_names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The documented spelling; of a positional argument, what it sets."""
        return self.names[0] if self.names else self.dest

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every spelling that the parser accepts in full."""
        return (*self.names, *self.hidden_names)

    @property
    def takes_no_word(self) -> bool:
        """Whether the flag stands alone."""
        return self.nargs == 0

    @property
    def is_switch(self) -> bool:
        """Whether one spelling says yes and another says no."""
        return self.action in _SWITCHES

    @property
    def appends(self) -> bool:
        """Whether each further use adds to the values, where others replace them."""
        return self.action.partition(":")[0] == "append"

    def negates(self, spelling: str) -> bool:
        """Whether this spelling of a switch says no."""
        if not self.is_switch:
            return False
        if spelling.startswith("--no-"):
            return True
        return self.action == _SWITCHES[1] and _inverse(spelling) in self.names[:1]

    def spelling_of(self, *, yes: bool) -> str:
        """The documented spelling that switches this on, or off; empty where there is none."""
        return next((name for name in self.spellings if self.negates(name) is not yes), "")


def _inverse(spelling: str) -> str:
    for prefix, opposite in _PAIRED:
        if spelling.startswith(prefix):
            return opposite + spelling.removeprefix(prefix)
    return ""


@frozen
class Typed:
    """The type and the default of an environment variable or of a field, as the engine has them."""

    type: str | None = None
    default: object = None


@frozen
class ConfigObject:
    """The fields that the JSON object of one flag may hold."""

    class_name: str = field(metadata={"key": "class"})
    fields: dict[str, Typed]


@frozen
class OtherProgram:
    """The flags of a program that is started beside the engine: a router or gateway."""

    package: str
    version: str
    flags: tuple[Flag, ...]


@frozen
class Orchestrator:
    """The flags that a launcher keeps for itself, and where it sends the others."""

    flags: tuple[Flag, ...]
    to_both: tuple[str, ...]
    to_gateway: tuple[str, ...]
    aliases: dict[str, str]
    multi_value_engine_flags: tuple[str, ...]
    unknown_flags: str


@frozen
class FlagCatalog:
    """Everything that one release of an engine reads from its command line and environment.

    ``runtime_choices`` are values that are checked after parsing, by flag, or by flag and field
    with a dot between; ``choice_lists`` are lists of the release that belong to no single flag.
    """

    id: str
    name: str
    engine: str
    version: str
    command: str
    method: str
    source: str
    checked: str
    torch: str
    flags: tuple[Flag, ...]
    environment_variables: dict[str, Typed]
    environment_names_in_source: tuple[str, ...]
    runtime_choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    choice_lists: dict[str, tuple[object, ...]] = field(default_factory=dict)
    config_objects: dict[str, ConfigObject] = field(default_factory=dict)
    gateway: OtherProgram | None = None
    orchestrator: Orchestrator | None = None
    kimi_architectures: tuple[str, ...] = ()
    stubbed_modules: tuple[str, ...] = ()
    abbreviations: bool = True

    def reads_environment(self, variable: str) -> bool:
        """Whether the release names this variable anywhere."""
        return (
            variable in self.environment_variables or variable in self.environment_names_in_source
        )


def flags_by_spelling(flags: tuple[Flag, ...]) -> dict[str, Flag]:
    """Every accepted spelling and its flag."""
    return {spelling: flag for flag in flags for spelling in flag.spellings}
