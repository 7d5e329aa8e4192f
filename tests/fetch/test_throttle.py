from datetime import datetime

import pytest

from k31ctl.fetch.throttle import parse_hours


@pytest.mark.parametrize(
    ("hours", "at", "wait_s"),
    [
        ("22:00-06:00", "23:30", 0),
        ("22:00-06:00", "05:59", 0),
        ("22:00-06:00", "06:00", 16 * 3600),
        ("08:00-09:00", "07:30", 1800),
        ("08:00-09:00", "09:00", 23 * 3600),  # tomorrow
    ],
)
def test_a_window_opens_when_it_says(hours: str, at: str, wait_s: float) -> None:
    now = datetime.fromisoformat(f"2026-11-29T{at}:00")
    assert parse_hours(hours).wait_s(now) == wait_s


def test_a_window_that_is_none_says_what_to_write() -> None:
    with pytest.raises(ValueError, match="22:00-06:00"):
        parse_hours("nightly")
