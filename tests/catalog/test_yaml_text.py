import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.catalog.yaml_text import parse_yaml
from k31ctl.errors import ProfileError


def test_plain_yaml_is_read_as_it_is_written() -> None:
    text = "id: a\nn: 1_000\nlist: [1.5, true, null]\nmap: {k: 4.8 TB/s, 'q': '1'}\n"
    assert parse_yaml(text, where="a") == {
        "id": "a",
        "n": 1000,
        "list": [1.5, True, None],
        "map": {"k": "4.8 TB/s", "q": "1"},
    }


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("a: 1\nb: {c: 1, c: 2}\n", "duplicate key 'c'", "f:2"),
        ("a: &x 1\nb: *x\n", "anchors and aliases are not read", "f:1"),
        ("a: *x\n", "anchors and aliases are not read", "f:1"),
        ("a: !!python/object:os.system 1\n", "tags are not read", "f:1"),
        ("a: !mine {}\n", "tags are not read", "f:1"),
        ("? [1]\n: 2\n", "a key is not plain text", "f:1"),
        ("[" * 100 + "]" * 100, "nested deeper than 64 levels", "f:1"),
        ("{a: " * 50_000, "nested deeper than 64 levels", "f:1"),
        ("a: 1\n---\nb: 2\n", "2 documents in one file", "f"),
        ("", "0 documents in one file", "f"),
        ("a: [1\n", "not readable as YAML", "f"),
        ("a: .nan\n", "not a finite number", "f"),
        ("a: 2026-13-45\n", "not readable as YAML", "f"),
        ("a: " + "9" * 5000, "not readable as YAML", "f"),
        ("<<: {a: 1}\n", "not readable as YAML", "f"),
        ("\x00", "not readable as YAML", "f"),
    ],
)
def test_the_parts_of_yaml_that_surprise_are_refused(text: str, what: str, where: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_yaml(text, where="f")
    assert what in caught.value.what
    assert caught.value.where == where


@given(st.text(alphabet="ab:- \n[]{},'\"&*!|>#%@`0123456789.?<~\t", max_size=60))
def test_any_text_is_read_or_refused_and_never_a_crash(text: str) -> None:
    try:
        parse_yaml(text, where="f")
    except ProfileError as error:
        assert error.what
