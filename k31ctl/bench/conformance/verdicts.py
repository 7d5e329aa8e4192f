"""What a check came to, and what it rests on."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from k31ctl.core.finding import Severity
from k31ctl.values import frozen


class Verdict(StrEnum):
    """Failed is said on evidence against the service, or of a promise that it did not force."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    INCONCLUSIVE = "inconclusive"


@frozen
class Evidence:
    """One request and its answer, shortened and without secrets.

    ``status`` is None where no answer came; ``response`` is then what went wrong. ``read`` is what
    was read from an answer, by channels, None where it is none or was left in the middle.
    """

    purpose: str
    path: str
    request: Any
    status: int | None
    headers: Mapping[str, str]
    response: Any
    read: Mapping[str, Any] | None
    seconds: float


@frozen
class Outcome:
    """What one check says; ``link`` is the known issue that looks like this."""

    verdict: Verdict
    detail: str
    link: str = ""


@frozen
class CheckResult:
    """A check that was run, or left out with the reason."""

    id: str
    title: str
    severity: Severity
    verdict: Verdict
    detail: str
    link: str
    seconds: float
    evidence: tuple[Evidence, ...]

    @property
    def breaks_contract(self) -> bool:
        """Whether this alone means that the contract is not kept."""
        return self.verdict is Verdict.FAILED and self.severity is Severity.ERROR


class JudgedError(Exception):
    """A check is decided before its end; never leaves this room."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.detail)
        self.outcome = outcome


def passed(detail: str) -> Outcome:
    """The endpoint keeps this part."""
    return Outcome(verdict=Verdict.PASSED, detail=detail)


def failed(detail: str, link: str = "") -> Outcome:
    """The endpoint breaks this part."""
    return Outcome(verdict=Verdict.FAILED, detail=detail, link=link)


def skipped(why: str) -> Outcome:
    """This part does not apply here."""
    return Outcome(verdict=Verdict.SKIPPED, detail=why)


def inconclusive(why: str) -> Outcome:
    """It was asked, and the answer proves neither."""
    return Outcome(verdict=Verdict.INCONCLUSIVE, detail=why)


def fail_if(is_broken: object, detail: str, link: str = "") -> None:
    """End the check where something is broken; raises JudgedError."""
    if is_broken:
        raise JudgedError(failed(detail, link))


def unclear_if(is_unclear: object, why: str) -> None:
    """End the check where it cannot be told; raises JudgedError."""
    if is_unclear:
        raise JudgedError(inconclusive(why))
