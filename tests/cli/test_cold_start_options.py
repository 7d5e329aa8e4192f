import pytest

from k31ctl.cli.cold_start_options import link_rate
from k31ctl.errors import UsageError


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [("10Gbps", 1.25e9), ("10 Gb/s", 1.25e9), ("800 Mbit/s", 1e8), ("125 MB/s", 1.25e8)],
)
def test_bits_and_bytes_are_told_apart(text: str, bytes_per_s: float) -> None:
    assert link_rate(text) == bytes_per_s


@pytest.mark.parametrize("text", ["", "10", "fast", "0 MB/s", "1e300 GB/s", "-1Gbps", "9" * 100])
def test_what_is_no_rate_is_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        link_rate(text)
    assert "10Gbps" in refused.value.remedy
