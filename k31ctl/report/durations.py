"""Times as people write them."""

_MINUTE = 60
_HOUR = 3600
_SECONDS_UP_TO = 120


def duration(seconds: float) -> str:
    """Seconds as ``0.44 s``, ``95 s``, ``9 min 12 s`` or ``1 h 47 min``."""
    if round(seconds, 1) < 10:  # noqa: PLR2004 - below it decimals matter
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + " s"
    whole = round(seconds)
    if whole < _SECONDS_UP_TO:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    minutes = round(seconds / _MINUTE)
    return f"{minutes // _MINUTE} h {minutes % _MINUTE} min"
