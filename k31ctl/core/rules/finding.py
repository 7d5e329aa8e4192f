"""One thing wrong with a launch, how bad it is, and the change that mends it."""

from dataclasses import field

from k31ctl.core.finding import Severity
from k31ctl.values import frozen


@frozen
class Change:
    """What to write instead; positions are indices into the words of the launch.

    ``replace`` gives words other text, ``remove`` takes words out, ``add`` puts words at the end
    of the command; variables are set, or unset where their new value is None.
    ``unix_lines`` ends every line of the file in LF alone.
    """

    replace: dict[int, str] = field(default_factory=dict)
    remove: tuple[int, ...] = ()
    add: tuple[str, ...] = ()
    variables: dict[str, str | None] = field(default_factory=dict)
    unix_lines: bool = False


@frozen
class Finding:
    """One thing wrong: which rule says so, what happens, what to do, and what that rests on.

    ``positions`` are words of the launch and ``variable`` a name in its environment; both are
    empty for what is missing. ``where`` is filled in by whoever knows the file.
    """

    id: str
    severity: Severity
    message: str
    remedy: str
    source: str
    positions: tuple[int, ...] = ()
    variable: str = ""
    change: Change | None = None
    where: str = ""
