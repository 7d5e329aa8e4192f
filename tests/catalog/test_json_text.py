from pathlib import Path

import pytest

from k31ctl.catalog import read_json_config
from k31ctl.errors import InputError


def test_a_folder_stands_for_the_config_inside_it(tmp_path: Path) -> None:
    place = tmp_path / "config.json"
    place.write_text('\ufeff{"hidden_size": 7168}', encoding="utf-8")
    expected = ({"hidden_size": 7168}, str(place))
    assert read_json_config(tmp_path) == expected
    assert read_json_config(place) == expected


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not readable as JSON"),
        (b"{", "not readable as JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": -Infinity}', "-Infinity is not a number"),
        (b'{"a": 1e999}', "1e999 is not a finite number"),
        (b'{"a": {"b": 1, "b": 2}}', "duplicate key 'b'"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not readable as JSON"),
        (b'{"a": "\xff"}', "not UTF-8 text"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "nested deeper than 64 levels"),
        (b'{"a": ' + b"[" * 200_000, "nested too deep to read"),
        (b" " * (8 * 2**20 + 1), "larger than 8388608 bytes"),
    ],
)
def test_what_is_no_config_is_refused(tmp_path: Path, content: bytes, what: str) -> None:
    place = tmp_path / "config.json"
    place.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_json_config(place)
    assert what in caught.value.what
    assert caught.value.where == str(place)


@pytest.mark.parametrize(
    ("name", "what"),
    [("", "this folder holds no config.json"), ("missing.json", "no such file")],
)
def test_a_missing_config_is_named(tmp_path: Path, name: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read_json_config(tmp_path / name)


def test_a_device_is_not_read() -> None:
    with pytest.raises(InputError, match="not a regular file"):
        read_json_config(Path("/dev/zero"))


def test_a_path_that_the_system_refuses_is_an_input_error() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_json_config(Path("x" * 5_000))
