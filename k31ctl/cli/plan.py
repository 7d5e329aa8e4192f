"""``k31ctl plan``: a placeholder until the command lands."""

from k31ctl.errors import UsageError


def plan() -> None:
    """Not available in this version."""
    raise UsageError("plan is not available", where="k31ctl plan", remedy="use k31ctl profiles")
