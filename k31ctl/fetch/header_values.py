"""Numbers and times in the headers of an answer; a server may write anything there."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_LONGEST_NUMBER: Final = 18  # digits: an exabyte
_SECONDS: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


def whole_number(text: str | None) -> int | None:
    """Return a count as headers write it, None for anything else."""
    if not text or len(text) > _LONGEST_NUMBER or not (text.isascii() and text.isdigit()):
        return None
    return int(text)


def retry_after_s(text: str | None, *, date: str | None, now: datetime) -> float | None:
    """Return how long a server asks us to wait, in seconds; None where it says nothing sensible.

    A point in time is held against ``date``, the server's own clock, and against ``now`` where it
    tells none; one that has passed means at once. Source: RFC 9110, section 10.2.3; fractions of
    a second are not in it, and are sent.
    """
    found = (text or "").strip()
    if _SECONDS.fullmatch(found):
        return float(found)
    until = _time(found)
    if until is None:
        return None
    return max(0.0, (until - (_time(date) or now)).total_seconds())


def _time(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text or "")
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
