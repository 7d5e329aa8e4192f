"""What servers write into headers, and what is made of it."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.errors import EndpointError
from k31ctl.fetch.header_values import retry_after_s, whole_number
from tests.fetch.conftest import is_whole
from tests.fetch.direct import Download
from tests.fetch.hub_server import HubServer, status_once

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0), ("7", 7.0), (" 7 ", 7.0), ("1.5", 1.5), ("007", 7.0),
        ("Mon, 30 Nov 2026 12:00:30 GMT", 30.0), ("Monday, 30-Nov-26 12:00:30 GMT", 30.0),
        ("Mon Nov 30 12:00:30 2026", 30.0), ("Mon, 30 Nov 2026 13:00:30 +0100", 30.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("", None), ("-1", None), ("soon", None), ("1e3", None), ("nan", None), ("inf", None),
        ("²", None), ("٣", None), ("1.", None), (".5", None), ("5 s", None), ("0x10", None),
        ("Mon, 99 Nov 2026 12:00:30 GMT", None), ("Mon, 30 Nov 99999 12:00:30 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_as_servers_write_it(text: str, seconds: float | None) -> None:
    assert retry_after_s(text, date=None, now=NOW) == seconds


def test_a_time_is_held_against_the_server_s_own_clock() -> None:
    text, date = "Mon, 30 Nov 2026 15:00:30 GMT", "Mon, 30 Nov 2026 15:00:10 GMT"
    assert retry_after_s(text, date=date, now=NOW) == 20.0
    assert retry_after_s(text, date="yesterday", now=NOW) == 3 * 3600 + 30


@given(st.text())
def test_any_text_is_no_wait_or_one_that_is_not_negative(text: str) -> None:
    found = retry_after_s(text, date=text, now=NOW)
    assert found is None or found >= 0


@given(st.integers(0, 10**6))
def test_a_time_is_as_good_as_its_seconds(wait_s: int) -> None:
    text = format_datetime(NOW + timedelta(seconds=wait_s), usegmt=True)
    assert retry_after_s(text, date=None, now=NOW) == wait_s


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), ("0", 0), ("", None), (None, None), ("-1", None), ("²", None), ("9" * 5000, None)],
)
def test_a_count_is_digits_and_nothing_else(text: str | None, number: int | None) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize("value", ["-5", "soon", "\xb2", "0.01", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_a_strange_retry_after_is_asked_again(hub: HubServer, tmp_path: Path, value: str) -> None:
    hub.api_fault = lambda number: (503, {"Retry-After": value}, b"") if number == 1 else None
    hub.fault = status_once(503, {"Retry-After": value})
    Download(hub, tmp_path / "w", retries=3).finish()
    assert is_whole(hub, tmp_path / "w")


@pytest.mark.parametrize("header", ["Content-Range", "X-Linked-Size", "Content-Length"])
@pytest.mark.parametrize("value", ["\xb2", "9" * 5000])
def test_a_count_that_is_none_ends_in_no_traceback(
    hub: HubServer, tmp_path: Path, header: str, value: str
) -> None:
    hub.redirect_host = None
    value = f"bytes 0-{value}/{value}" if header == "Content-Range" else value
    hub.fault = lambda answer: answer.headers.update({header: value})
    try:
        Download(hub, tmp_path / "w", retries=0, stall_s=1.0).finish()
    except EndpointError as error:
        assert str(error).isprintable()
    else:
        assert is_whole(hub, tmp_path / "w")
