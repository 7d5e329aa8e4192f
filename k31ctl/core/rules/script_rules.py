"""Rules about a script as a file, whatever it starts."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import FileKind, LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule

_SCRIPTS: Final = (FileKind.SHELL, FileKind.SBATCH, FileKind.DOCKER)


def _carriage_returns(context: LaunchContext) -> Iterable[Hit]:
    if context.kind not in _SCRIPTS or not context.has_carriage_returns:
        return NOTHING
    message = (
        "lines end in CR and LF: the shell takes the CR for a part of the last word, and a "
        "backslash before it joins no lines"
    )
    return (Hit(message=message, change=Change(unix_lines=True)),)


SCRIPT_RULES: Final = (
    Rule(
        id="script-line-ends",
        severity=Severity.ERROR,
        about="lines of a script end in CR and LF, as Windows writes them",
        remedy="end its lines in LF alone, as --fix and dos2unix do",
        source="POSIX.1-2024, Shell Command Language, 2.2.1 and 2.3",
        check=_carriage_returns,
    ),
)
