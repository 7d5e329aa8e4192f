"""Failures that a user can cause or mend, each with the exit code it becomes."""

from typing import ClassVar


class K31Error(Exception):
    """A failure in three parts: what is wrong, where, and what to do next."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str, remedy: str) -> None:
        super().__init__(f"{what} ({where})")
        self.what, self.where, self.remedy = what, where, remedy

    @property
    def place(self) -> str:
        """Where it failed, as the second line of a failure shows it."""
        return self.where


class UsageError(K31Error):
    """The options contradict each other or ask for something that does not exist."""

    exit_code = 2


class ProfileError(K31Error):
    """A profile is missing, misspelt or inconsistent."""

    exit_code = 3


class InputError(K31Error):
    """A file, a checkpoint or this machine is not what the command needs."""

    exit_code = 3


class RefusedError(K31Error):
    """What was asked for is unsafe, not possible, or does not fit.

    ``rule`` is the name of the rule that refused and ``source`` is what the rule rests on.
    """

    exit_code = 4

    def __init__(
        self, what: str, *, where: str, remedy: str, rule: str = "", source: str = ""
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.rule, self.source = rule, source

    @property
    def place(self) -> str:
        """Where it failed, with the rule that refused."""
        named = (("rule ", self.rule), ("source: ", self.source))
        marks = ", ".join(label + text for label, text in named if text)
        return f"{self.where}  ({marks})" if marks else self.where


class GateError(K31Error):
    """A result does not meet a condition that was set with ``--gate``."""

    exit_code = 4


class NotProvenError(K31Error):
    """Data on disk is missing, incomplete or not what was published."""

    exit_code = 5


class EndpointError(K31Error):
    """An endpoint cannot be reached or broke its contract."""

    exit_code = 6
