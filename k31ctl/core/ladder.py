"""The steps of a smoke test, what each found, and what that means."""

from enum import StrEnum
from math import isfinite
from typing import Final

from k31ctl.values import frozen


class Status(StrEnum):
    """How a step ended; skipped ones say why."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"


@frozen
class Rung:
    """One step: its name, and how long it may take before it counts as hanging."""

    id: str
    name: str
    timeout_s: float


RUNGS: Final = (
    Rung(id="identity", name="what this machine is", timeout_s=120),
    Rung(id="files", name="files, headers and tokenizer", timeout_s=900),
    Rung(id="device", name="arithmetic and copies of the device", timeout_s=300),
    Rung(id="expert", name="one expert of the checkpoint", timeout_s=300),
    Rung(id="blocks", name="every block on small numbers", timeout_s=300),
    Rung(id="layers", name="layers of the checkpoint, one by one", timeout_s=1800),
    Rung(id="all", name="all layers, from tokens to logits", timeout_s=3600),
    Rung(id="service", name="the service under its clients", timeout_s=1800),
    Rung(id="repeat", name="the same again, bit by bit", timeout_s=1800),
)


@frozen
class Measure:
    """One number of a step; None is what is no finite number. Bounds decide the verdict."""

    name: str
    value: float | None
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the number is within its bounds."""
        if self.at_most is None and self.at_least is None:
            return True
        if self.value is None:
            return False
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most)


@frozen
class Step:
    """What came of one step."""

    id: str
    name: str
    status: Status
    seconds: float
    detail: str
    measures: tuple[Measure, ...] = ()
    notes: tuple[str, ...] = ()


def measure(
    name: str,
    value: float,
    *,
    unit: str = "",
    at_most: float | None = None,
    at_least: float | None = None,
) -> Measure:
    """A number as it was computed, which may be none."""
    found = float(value) if isfinite(value) else None
    return Measure(name=name, value=found, unit=unit, at_most=at_most, at_least=at_least)


def first_broken(measures: tuple[Measure, ...]) -> Measure | None:
    """The first number that is outside its bounds."""
    return next((each for each in measures if not each.holds), None)


def is_green(steps: tuple[Step, ...]) -> bool:
    """Whether no step failed and one at least passed."""
    statuses = [step.status for step in steps]
    return Status.FAIL not in statuses and Status.PASS in statuses
