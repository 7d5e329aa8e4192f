"""A rule: its id, how bad it is, for which releases it holds, what it rests on, and its check."""

from collections.abc import Callable, Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.launch import Setting
from k31ctl.core.release import release_key
from k31ctl.core.rules.context import FileKind, LaunchContext
from k31ctl.core.rules.finding import Change, Finding
from k31ctl.core.rules.open_values import OpenValueError
from k31ctl.values import frozen


@frozen
class Hit:
    """One place where a rule applies; ``remedy`` and ``severity`` only where this case differs."""

    message: str
    remedy: str = ""
    positions: tuple[int, ...] = ()
    variable: str = ""
    change: Change | None = None
    severity: Severity | None = None


@frozen
class Rule:
    """One rule. ``since`` is the first release that it holds for and ``until`` the first after.

    ``about`` says in one sentence when the rule applies; without ``engines`` it is for all.
    ``failures`` are the numbers of the reports that it came from, in docs/rules.md. ``absence`` is
    whether it rests on what is not in the command, which a variable in it may yet bring,
    ``unset`` whether it rests on a variable that is not set; what is set around a bare command is
    not known, so there it is only worth knowing.
    """

    id: str
    severity: Severity
    about: str
    remedy: str
    source: str
    check: Callable[[LaunchContext], Iterable[Hit]]
    engines: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    failures: tuple[int, ...] = ()
    absence: bool = False
    unset: bool = False

    def holds(self, context: LaunchContext) -> bool:
        """Whether the rule is about this engine and release."""
        if self.engines and context.name not in self.engines:
            return False
        if (self.absence and context.open_ended) or (self.unset and context.open_environment):
            return False
        if not (self.since or self.until):
            return True
        mine = release_key(context.version)
        if mine is None:  # a branch counts as newer than every release
            return not self.until
        since, until = release_key(self.since), release_key(self.until)
        return (since is None or mine >= since) and (until is None or mine < until)

    def findings(self, context: LaunchContext) -> Iterable[Finding]:
        """Return what the rule finds in a launch that it is about.

        Nothing where that rests on a value which is only known when the launch runs.
        """
        known = not (self.unset and context.kind is FileKind.COMMAND)
        try:
            hits = tuple(self.check(context))
        except OpenValueError:
            return
        for hit in hits:
            yield Finding(
                id=self.id,
                severity=(hit.severity or self.severity) if known else Severity.INFO,
                message=_named(context, hit),
                remedy=hit.remedy or self.remedy,
                source=self.source,
                positions=hit.positions,
                variable=hit.variable,
                change=hit.change,
            )


NOTHING: tuple[Hit, ...] = ()
_LONGEST_VALUE: Final = 40


def _named(context: LaunchContext, hit: Hit) -> str:
    """The message with every flag and variable that it is about as it is written.

    What the message names already is not said again.
    """
    at = set(hit.positions)
    settings = {s.positions: s for s in context.launch.settings if at.intersection(s.positions)}
    named = [_written(setting) for setting in settings.values() if not _names(hit.message, setting)]
    if hit.variable and hit.variable not in hit.message:
        value = context.launch.environment.get(hit.variable)
        named.append(hit.variable if value is None else f"{hit.variable}={value}"[:80])
    return f"{hit.message} ({', '.join(named)})" if named else hit.message


def _names(text: str, setting: Setting) -> bool:
    """Whether the text has the flag, and its value where that is one short word."""
    value = setting.words[0] if len(setting.words) == 1 else ""
    has_value = len(value) > _LONGEST_VALUE or value.casefold() in text.casefold()
    if isinstance(setting.value, bool):
        return setting.spelling in text or setting.flag in text
    return setting.flag in text and has_value


def _written(setting: Setting) -> str:
    """A flag in full with its value, and in the spelling of the file where that is another."""
    is_other = setting.spelling.startswith("--") and not setting.flag.startswith(setting.spelling)
    if is_other and isinstance(setting.value, bool):
        return setting.spelling
    flag = f"{setting.spelling}, {setting.flag}" if is_other else setting.flag
    values = " ".join(setting.words)
    return f"{flag} {values}".rstrip() if len(values) <= _LONGEST_VALUE else flag


def drop(context: LaunchContext, *flags: str) -> Change:
    """Return the change that takes every use of these flags out."""
    used = [s for s in context.launch.settings if s.flag in flags]
    return Change(remove=tuple(p for setting in used for p in setting.positions))


def hit(
    context: LaunchContext,
    message: str,
    *flags: str,
    remedy: str = "",
    change: Change | None = None,
    variable: str = "",
    severity: Severity | None = None,
) -> tuple[Hit, ...]:
    """Return one hit at the flags named."""
    return (
        Hit(
            message=message,
            remedy=remedy,
            positions=context.at(*flags),
            change=change,
            variable=variable,
            severity=severity,
        ),
    )
