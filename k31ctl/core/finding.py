"""What is wrong, how bad it is, and what to do about it: one shape for every check."""

from enum import StrEnum

from k31ctl.values import frozen


class Severity(StrEnum):
    """An error stops or spoils what is asked for; a warning may, or costs time; info is to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@frozen
class Finding:
    """One fault: ``id`` is the rule's, ``source`` what the rule rests on, ``where`` the place."""

    id: str
    severity: Severity
    message: str
    remedy: str
    source: str
    where: str
