"""When a stage ran, and how much of that its load was full."""

from k31ctl.values import frozen


@frozen
class Span:
    """When a stage ran, and the time in between in which its load was full."""

    start_s: float
    end_s: float
    cpu_s: float
    cpu_wait_s: float | None
    full: "Full | None"


@frozen
class Full:
    """What was done from the first request until no new one was sent."""

    duration_s: float
    events: int
