import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl import units


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("4.8 TB/s", "B/s", 4.8e12),
        ("4.8TB/s", "B/s", 4.8e12),
        ("989 TFLOP/s", "FLOP/s", 989e12),
        ("1_400 W", "W", 1400.0),
        ("0.7 kW", "W", 700.0),
        ("5.4 us", "s", 5.4e-6),
        ("12 ms", "s", 0.012),
        ("143771 MiB", "B", 143_771 * 1024.0**2),
        ("1.5e12 B/s", "B/s", 1.5e12),
        (" 64 GB/s ", "B/s", 64e9),
    ],
)
def test_a_quantity_is_read_in_base_units(text: str, unit: str, expected: float) -> None:
    assert units.parse(text, unit) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    "text",
    ["", "4.8", "4.8 TB", "nan B/s", "inf B/s", "-1 B/s", "1__0 B/s", "1e999 B/s", "4,8 TB/s"],
)
def test_what_is_not_a_rate_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"write 4\.8 TB/s"):
        units.parse(text, "B/s")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("143771 MiB", 150_754_820_096),  # 143771 x 1048576
        ("42.23GiB", 45_344_117_227),  # 42.23 x 1073741824 = 45344117227.52
        ("42.23 GB", 42_230_000_000),
        ("1_559_945_217_152 B", 1_559_945_217_152),
        ("0.5 B", 0),
        ("288 GiB", 309_237_645_312),
        ("9007199254740993 B", 9_007_199_254_740_993),  # 2**53 + 1, which a float cannot hold
        ("1 KB", 1000),
    ],
)
def test_a_size_is_read_to_the_byte(text: str, expected: int) -> None:
    assert units.parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["42.23", "0", "42.23 gib", "-1 GiB", "GiB", "nan B", "1e30 B"])
def test_a_size_without_a_unit_is_refused_with_the_two_it_may_mean(text: str) -> None:
    with pytest.raises(ValueError, match=r"write 42\.23GiB or 42\.23GB"):
        units.parse_bytes(text)


@pytest.mark.parametrize("text", ["5 mB", "5 uB", "9" * 100 + " B"])
def test_a_size_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write 42"):
        units.parse_bytes(text)


@given(st.integers(min_value=0, max_value=2**63), st.sampled_from(["B", "kB", "MiB", "GB", "TiB"]))
def test_whole_sizes_are_exact_in_every_unit(count: int, unit: str) -> None:
    factor = {"B": 1, "kB": 10**3, "MiB": 2**20, "GB": 10**9, "TiB": 2**40}[unit]
    whole = count // factor
    assert units.parse_bytes(f"{whole} {unit}") == whole * factor


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8192", 8192),
        ("8k", 8192),
        ("128K", 131_072),
        ("1m", 1_048_576),
        ("1M", 1_048_576),
        ("1_000", 1000),
    ],
)
def test_tokens_are_counted_in_powers_of_two(text: str, expected: int) -> None:
    assert units.parse_tokens(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "8.5k", "8g", "k", "nan", "9" * 80, "2000000m"])
def test_what_is_not_a_count_of_tokens_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="tokens"):
        units.parse_tokens(text)


def test_a_list_is_read_entry_by_entry() -> None:
    assert units.parse_list("8k, 128k,1m", units.parse_tokens) == (8192, 131_072, 1_048_576)


def test_a_list_has_an_end() -> None:
    assert len(units.parse_list(",".join(["1"] * 10_000), units.parse_tokens)) == 10_000
    with pytest.raises(ValueError, match="at most 10000"):
        units.parse_list(",".join(["1"] * 10_001), units.parse_tokens)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1.56e12, "B", "1.56 TB"),
        (999.9e9, "B", "1 TB"),
        (0, "B", "0 B"),
        (450e9, "B/s", "450 GB/s"),
        (-2e9, "B", "-2 GB"),
        (1.2e22, "B", "12000 EB"),
    ],
)
def test_a_quantity_is_shown_with_three_digits(value: float, unit: str, expected: str) -> None:
    assert units.show(value, unit) == expected


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [
        (206_266_000_000, "192.1 GiB"),
        (17_000, "16.6 KiB"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (2**30 - 1, "1.0 GiB"),
        (0, "0 B"),
    ],
)
def test_a_size_is_shown_with_a_binary_prefix(num_bytes: int, expected: str) -> None:
    assert units.show_bytes(num_bytes) == expected


def test_a_size_is_shown_with_a_decimal_prefix_on_request() -> None:
    assert units.show_bytes(1_560_000_000_000, binary=False) == "1.56 TB"


def test_gibibytes_are_shown_bare_for_columns() -> None:
    assert units.show_gib(206_266_000_000) == "192.1"


@given(st.floats(min_value=1e-3, max_value=1e20))
def test_what_is_shown_reads_back_within_half_a_percent(value: float) -> None:
    shown = units.show(value, "B/s")
    assert math.isclose(units.parse(shown, "B/s"), value, rel_tol=5.1e-3)
