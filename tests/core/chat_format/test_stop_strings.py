from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.chat_format.stop_strings import StopStrings

LETTERS = st.text("ab\n", max_size=30)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=4)


def read(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    scanner = StopStrings(stops)
    text = "".join(scanner.feed(piece) for piece in pieces)
    return text + scanner.finish(), scanner.matched


def test_text_ends_before_the_stop_string() -> None:
    assert read(["END"], ["one E", "ND two"]) == ("one ", "END")


def test_only_what_may_be_a_stop_string_is_held_back() -> None:
    assert StopStrings(["END"]).feed("one EN") == "one "


@given(STOPS, LETTERS)
def test_pieces_do_not_matter(stops: list[str], text: str) -> None:
    assert read(stops, list(text)) == read(stops, [text])


@given(STOPS, LETTERS)
def test_nothing_but_the_stop_string_is_lost(stops: list[str], text: str) -> None:
    kept, matched = read(stops, [text])
    assert text.startswith(kept + (matched or ""))
    assert matched is not None or kept == text
    assert not any(stop in kept for stop in stops)
