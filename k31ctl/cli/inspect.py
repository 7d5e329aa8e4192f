"""``k31ctl inspect``: a placeholder until the command lands."""

from k31ctl.errors import UsageError


def inspect() -> None:
    """Not available in this version."""
    raise UsageError(
        "inspect is not available", where="k31ctl inspect", remedy="use k31ctl profiles"
    )
